"""SPLADE models in sentence-transformers' layout, and what its SparseEncoder makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.modules import SpladePooling, Transformer

PROMPTS = {"query": "query: ", "document": "text: "}


def write_splade(
    base: Path, folder: Path, pooling: str = "max", activation: str = "relu", length: int | None = 60, **arguments: Any
) -> None:
    """Save the checkpoint in `base` as a sparse encoder."""
    modules = [
        Transformer(str(base), transformer_task="fill-mask", max_seq_length=length),
        SpladePooling(pooling, activation),
    ]
    SparseEncoder(modules=modules, device="cpu", **arguments).save_pretrained(str(folder), create_model_card=False)


def save_splade(base: Path, folder: Path, *pooling: str, **arguments: Any) -> SparseEncoder:
    """Do what `write_splade` does, and load the result with sentence-transformers."""
    write_splade(base, folder, *pooling, **arguments)
    return reference(folder)


def reference(folder: Path) -> SparseEncoder:
    return SparseEncoder(str(folder), device="cpu", local_files_only=True)


def spelled_out(
    model: SparseEncoder, texts: list[str], input_type: str | None = None, **arguments: Any
) -> NDArray[Any]:
    call = {None: model.encode, "query": model.encode_query, "document": model.encode_document}[input_type]
    vectors = call(texts, convert_to_sparse_tensor=False, **arguments)
    return np.asarray(vectors.numpy())
