"""Late-interaction models in the three layouts, and what sentence-transformers' MultiVectorEncoder makes of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

from tests.pytorch.encoders import Answer
from tests.pytorch.models import HIDDEN, randomise

DIMS = 16
PROMPTS = {"query": "[Q] ", "document": "[D] "}
EXPANSION = {"strategy": "fixed", "attend": False, "length": 24}


def write_colbert(
    base: Path,
    folder: Path,
    *modules: Any,
    expansion: dict[str, Any] | None = None,
    lengths: dict[str, int] | None = None,
    prompts: dict[str, str] | None = None,
) -> None:
    """Save the checkpoint in `base` as a multi-vector encoder."""
    transformer = Transformer(str(base), query_expansion=expansion, max_seq_length=70, **(lengths or {}))
    chosen = modules or (projection(), MultiVectorMask([".", ","]), Normalize("token_embeddings"))
    model = MultiVectorEncoder(modules=[transformer, *chosen], device="cpu", prompts=prompts or PROMPTS)
    model.save_pretrained(str(folder), create_model_card=False)


def save_colbert(base: Path, folder: Path, *modules: Any, **arguments: Any) -> MultiVectorEncoder:
    """Do what `write_colbert` does, and load the result with sentence-transformers."""
    write_colbert(base, folder, *modules, **arguments)
    return reference(folder)


def projection(out_features: int = DIMS, in_features: int = HIDDEN, *, seed: int = 1, **fields: Any) -> Dense:
    fields = {"bias": False, "activation_function": torch.nn.Identity(), **fields}
    module = Dense(in_features, out_features, module_input_name="token_embeddings", **fields)
    randomise(module, seed)
    return module


def save_pylate(base: Path, folder: Path, **config: Any) -> MultiVectorEncoder:
    """Save the checkpoint in `base` as PyLate did before sentence-transformers had such models."""
    Transformer(str(base), max_seq_length=70).save(str(folder))
    head = projection()
    head.save(str(_made(folder / "1_Dense")))
    settings = json.loads((folder / "1_Dense/config.json").read_text())
    for name in ("module_input_name", "module_output_name"):
        del settings[name]
    (folder / "1_Dense/config.json").write_text(json.dumps(settings))
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(config))
    return reference(folder)


def save_stanford(base: Path, folder: Path, metadata: dict[str, Any] | None) -> MultiVectorEncoder:
    """Save the BERT checkpoint in `base` as Stanford's ColBERT does: the projection beside the encoder's weights."""
    folder.mkdir(exist_ok=True)
    for file in base.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    weights = {f"bert.{name}": weight for name, weight in load_file(base / "model.safetensors").items()}
    weights["linear.weight"] = projection().linear.weight.detach().numpy()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((base / "config.json").read_text()) | {"architectures": ["HF_ColBERT"]}
    (folder / "config.json").write_text(json.dumps(config))
    if metadata is not None:
        (folder / "artifact.metadata").write_text(json.dumps(metadata))
    return reference(folder)


def reference(folder: Path) -> MultiVectorEncoder:
    return MultiVectorEncoder(str(folder), device="cpu", local_files_only=True)


def encode(model: MultiVectorEncoder, texts: list[str], input_type: str | None, **arguments: Any) -> list[NDArray[Any]]:
    call = {None: model.encode, "query": model.encode_query, "document": model.encode_document}[input_type]
    return [np.asarray(each) for each in call(texts, convert_to_numpy=True, **arguments)]


def furthest(answer: Answer | Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]]) -> float:
    """Measure the largest difference of any vector; infinite where a text has another number of them."""
    ours = answer if not isinstance(answer, Answer) else [output.multivector for output in answer.outputs]
    worst = 0.0
    for one, other in zip(ours, expected, strict=True):
        assert one is not None
        if one.shape != other.shape:
            return float("inf")
        worst = max(
            worst, float(np.abs(one - other).max(initial=0)) / max(1.0, float(other.std()) if other.size else 1)
        )
    return worst


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
