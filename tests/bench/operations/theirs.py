"""The reference libraries through their own APIs: `python -m tests.bench.operations.theirs` obeys orders on stdin."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.operations.answers import Answers, save
from tests.bench.operations.models import THRESHOLD, write_models
from tests.bench.operations.talking import Orders
from tests.bench.operations.workload import Load

Ask = Callable[[Load, int], Any]
"""Hands a load to the library at a batch size and returns what it gave."""
Read = Callable[[Any, Load], Answers]
"""Reads what the library gave; not timed."""


def load_score(folder: str) -> tuple[Ask, Read]:
    """CrossEncoder: a number a pair."""
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(folder, device="cpu", local_files_only=True)

    def ask(load: Load, size: int) -> Any:
        pairs = list(zip(load.queries, load.texts, strict=True))
        return model.predict(pairs, batch_size=size, show_progress_bar=False)

    return ask, lambda given, _: {"scores": np.asarray(given, np.float32)}


def load_dense(folder: str) -> tuple[Ask, Read]:
    """SentenceTransformer: a vector a text."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, device="cpu", local_files_only=True)

    def ask(load: Load, size: int) -> Any:
        return model.encode_document(load.texts, batch_size=size, show_progress_bar=False)

    return ask, lambda given, _: {"vectors": np.asarray(given, np.float32)}


def load_sparse(folder: str) -> tuple[Ask, Read]:
    """SparseEncoder: a sparse tensor."""
    from sentence_transformers import SparseEncoder

    model = SparseEncoder(folder, device="cpu", local_files_only=True)

    def ask(load: Load, size: int) -> Any:
        return model.encode_document(load.texts, batch_size=size, show_progress_bar=False)

    return ask, lambda given, _: {"weights": given.to_dense().numpy()}


def load_multivector(folder: str) -> tuple[Ask, Read]:
    """MultiVectorEncoder: a tensor a text."""
    from sentence_transformers import MultiVectorEncoder

    model = MultiVectorEncoder(folder, device="cpu", local_files_only=True)

    def ask(load: Load, size: int) -> Any:
        return model.encode_document(load.texts, batch_size=size, show_progress_bar=False, convert_to_numpy=True)

    def read(given: Any, _: Load) -> Answers:
        return {"vectors": np.concatenate(given), "lengths": np.array([len(each) for each in given])}

    return ask, read


def load_extract(folder: str) -> tuple[Ask, Read]:
    """Load a GLiNER: entities of each text."""
    from gliner import GLiNER

    model = GLiNER.from_pretrained(folder, local_files_only=True)
    threshold = json.loads((Path(folder) / THRESHOLD).read_text())

    def ask(load: Load, size: int) -> Any:
        return model.inference(load.texts, load.labels, threshold=threshold, batch_size=size)

    def read(given: Any, load: Load) -> Answers:
        entities = given[0] if isinstance(given, tuple) else given
        found = [(unit, each) for unit, listed in enumerate(entities) for each in listed]
        spans = [(unit, each["start"], each["end"], load.labels.index(each["label"])) for unit, each in found]
        scores = np.array([each["score"] for _, each in found], np.float32)
        return {"spans": np.array(spans, np.int64).reshape(-1, 4), "scores": scores}

    return ask, read


LOADERS = {
    "score": load_score,
    "dense": load_dense,
    "sparse": load_sparse,
    "multivector": load_multivector,
    "extract": load_extract,
}


def main() -> None:
    import torch

    orders = Orders()
    ask: Ask
    read: Read
    for order in orders:
        if "write" in order:
            orders.answer(write_models(Path(order["write"]), order["names"], tiny=order["tiny"]))
            continue
        if "load" in order:
            torch.set_num_threads(order["threads"])
            ask, read = LOADERS[order["load"]](order["folder"])
            orders.answer("loaded")
            continue
        load = Load(**order["ask"])
        started = time.perf_counter()
        given = ask(load, order["size"])
        seconds = time.perf_counter() - started
        if order.get("save"):
            save(Path(order["save"]), read(given, load))
        orders.answer(seconds)


if __name__ == "__main__":
    main()
