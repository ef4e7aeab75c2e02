"""MiniLM as an ONNX graph, exported and fused once, in a folder a server can load."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.bench.processes.environments import INFINITY, ROOT, SCRATCH

FOLDER = SCRATCH / "onnx"
GRAPH = FOLDER / "model.onnx"
NAMES = ("input_ids", "attention_mask", "token_type_ids")
OPSET = 17


def build_graph(weights: Path) -> Path:
    """Export the model in infinity's environment, unless it was; return the graph."""
    if not GRAPH.is_file():
        INFINITY.build()
        FOLDER.mkdir(parents=True, exist_ok=True)
        for file in weights.glob("*.json"):
            shutil.copy(file, FOLDER)
        shutil.copy(weights / "vocab.txt", FOLDER)
        command = [str(INFINITY.program("python")), "-m", "tests.bench.without_server.onnx_graph", str(weights)]
        subprocess.run(
            command,
            check=True,
            cwd=ROOT,
            stdout=sys.stderr,
            timeout=600,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )
    return GRAPH


def export(weights: Path, graph: Path = GRAPH) -> None:
    """Trace the model, fuse attention, GELU and layer norms, and write the graph; runs in an environment with both."""
    import torch
    from onnxruntime.transformers import optimizer
    from transformers import AutoModel

    model = AutoModel.from_pretrained(weights, attn_implementation="eager", dtype=torch.float32).eval()

    class States(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
            answer = self.model(input_ids=ids, attention_mask=mask, token_type_ids=types)
            states: torch.Tensor = answer.last_hidden_state
            return states

    ids = torch.randint(1000, 2000, (2, 9))
    axes = {name: {0: "batch", 1: "tokens"} for name in (*NAMES, "last_hidden_state")}
    traced = graph.with_suffix(".traced.onnx")
    torch.onnx.export(
        States(), (ids, torch.ones_like(ids), torch.zeros_like(ids)), str(traced), input_names=list(NAMES),
        output_names=["last_hidden_state"], dynamic_axes=axes, opset_version=OPSET, dynamo=False,
    )  # fmt: skip
    config = model.config
    fused = optimizer.optimize_model(
        str(traced), "bert", num_heads=config.num_attention_heads, hidden_size=config.hidden_size, opt_level=0
    )
    traced.unlink()
    fused.save_model_to_file(str(graph))


if __name__ == "__main__":
    export(*map(Path, sys.argv[1:]))
