"""Tiny models of static vectors, written as model2vec and sentence-transformers write them, without either."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

WORDS = ["[UNK]", *"abcdefghij", "find", ":", "query", "document", "short", "long", "and", "the"]
DIMS = 12
TEXTS = ["a short query", "the long document and the query", "", "unknown words and a b c", "find: A", "zzz"]


def table(rows: int = len(WORDS), seed: int = 3) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((rows, DIMS)).astype(np.float32)


def write_tokenizer(folder: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))


def write_model2vec(
    folder: Path, *, normalize: bool = True, tensors: dict[str, Any] | None = None, **config: Any
) -> Path:
    write_tokenizer(folder)
    save_file(tensors or {"embeddings": table()}, folder / "model.safetensors")
    stated = {"model_type": "model2vec", "architectures": ["StaticModel"], "normalize": normalize, **config}
    (folder / "config.json").write_text(json.dumps(stated))
    return folder


def write_static_embedding(folder: Path, *, normalize: bool = False, **files: Any) -> Path:
    """Write the folders of sentence-transformers' `StaticEmbedding`, and of a `Normalize` after it."""
    write_tokenizer(folder / "0_StaticEmbedding")
    save_file({"embedding.weight": table()}, folder / "0_StaticEmbedding/model.safetensors")
    kinds = ["StaticEmbedding", *(["Normalize"] if normalize else [])]
    modules = [
        {"idx": number, "name": str(number), "path": f"{number}_{kind}", "type": f"sentence_transformers.models.{kind}"}
        for number, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(files))
    for module in modules:
        (folder / module["path"]).mkdir(exist_ok=True)
    return folder
