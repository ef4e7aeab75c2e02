"""`python -m tests.bench.gpu.engines`: large embedders on an SGLang engine, beside the server's own runners and
sentence-transformers. Prints a table of tokens a second; `SIE_SGLANG_PYTHON` names the engine's Python.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from tests.bench.gpu.passes import tokenize
from tests.bench.gpu.shapes import QWEN3, Shape, write_model
from tests.bench.gpu.timing import middle
from tests.bench.gpu.whole import engine_seconds, sentence_transformers_seconds
from tests.bench.workload.words import sentences

LENGTHS = (128, 512, 4096)
SMALL = replace(QWEN3, longest=max(LENGTHS))
LARGE = replace(
    SMALL,
    name="Qwen3-4B",
    fields={
        **QWEN3.fields,
        "hidden_size": 2560,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "intermediate_size": 9728,
    },
)
ON_ENGINE = {"profiles": {"default": {"adapter_path": "sglang"}}}


def rows(shape: Shape, device: str, precision: str, tokens: int, repeats: int) -> Iterator[str]:
    """Write the model; measure each way to serve it."""
    with tempfile.TemporaryDirectory() as name:
        folder = write_model(shape, Path(name) / "model", getattr(torch, precision))
        modules = folder / "modules.json"
        unit = {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}
        modules.write_text(json.dumps([*json.loads(modules.read_text()), unit]))
        random = np.random.default_rng(7)
        loads = {
            str(length): [sentences(length - 2, random) for _ in range(max(1, tokens // length))] for length in LENGTHS
        }
        counts = {kind: sum(map(len, tokenize(folder, texts))) for kind, texts in loads.items()}
        given = (folder, device, precision, loads, repeats)

        def row(what: str, taken: dict[str, list[float]]) -> str:
            gc.collect()
            if device == "cuda":
                torch.cuda.empty_cache()
            cells = (f"{counts[kind] / middle(seconds):,.0f}" for kind, seconds in taken.items())
            return " | ".join((f"| {shape.name}", what, *cells)) + " |"

        yield row("sentence-transformers", sentence_transformers_seconds(*given))
        for place, config in enumerate(({}, ON_ENGINE)):
            taken, runner = asyncio.run(engine_seconds(*given, Path(name) / f"server{place}", config))
            yield row(f"SIE, {runner}", taken)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu.engines")
    parser.add_argument("--tokens", type=int, default=2**18, help="tokens of each kind of text")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    if not (torch.cuda.is_available() and os.environ.get("SIE_SGLANG_PYTHON")):
        print("SGLang is not measured: no CUDA device, or SIE_SGLANG_PYTHON is not set.", file=sys.stderr)
        return 0
    print(f"| tokens/s on {torch.cuda.get_device_name()} | | " + " | ".join(f"{length} tokens" for length in LENGTHS))
    print("|" + "---|" * (2 + len(LENGTHS)))
    for shape in (SMALL, LARGE):
        for line in rows(shape, "cuda", "bfloat16", options.tokens, options.repeats):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
