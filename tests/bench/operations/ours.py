"""SIE's engine in process, every stage of it: `python -m tests.bench.operations.ours` obeys orders on stdin."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import yaml
from sie_sdk.wire import unpack

from sie_core.contracts import InferenceRequest, Item, LoadWait
from sie_core.defaults import BUILTINS
from sie_core.engine import build_engine
from sie_core.plugins import discover
from sie_core.settings import load_settings
from tests.bench.operations.answers import Answers, save
from tests.bench.operations.models import THRESHOLD
from tests.bench.operations.talking import Orders
from tests.bench.operations.workload import OPERATIONS, Load

LOAD_WAIT_S = 240.0
NOTES = ("runner", "classifier", "checkpoint")
_numbers = itertools.count()


class Side:
    """An engine that serves the models of the operations.

    Args:
        folders: The folder of each operation's weights.
        scratch: Where it may keep files.
    """

    def __init__(self, folders: dict[str, str], scratch: Path) -> None:
        models = scratch / "models"
        models.mkdir()
        for name, folder in folders.items():
            config = {"sie_id": _model(name), "weights_path": folder}
            (models / f"{name.replace(' ', '-')}.yaml").write_text(yaml.safe_dump(config))
        settings = load_settings(models_dir=models, local_cache=scratch / "cache", hf_fallback=False)
        plugins = discover(settings, BUILTINS)
        self._folders = folders
        self._engine = build_engine(settings, plugins)

    async def start(self) -> None:
        await self._engine.start()

    async def load(self, name: str) -> dict[str, Any]:
        """Load an operation's model; say what runs it."""
        await self._engine.load(_model(name))
        info = self._engine.model(_model(name))
        runner = next((info.notes[note] for note in NOTES if note in info.notes), "")
        return {"precision": info.precision, "adapter": info.adapter, "runner": runner}

    async def ask(self, name: str, load: Load, size: int) -> tuple[float, list[bytes]]:
        """Send a load in requests of `size` units, all at once; return the seconds and the encoded items."""
        requests = list(self._requests(name, load, size))
        started = time.perf_counter()
        replies = await asyncio.gather(*(self._engine.infer(request) for request in requests))
        seconds = time.perf_counter() - started
        return seconds, [item for reply in replies for item in reply.items]

    def _requests(self, name: str, load: Load, size: int) -> Iterator[InferenceRequest]:
        for part in load.parts(size):
            yield InferenceRequest(
                _model(name), request_id=f"b{next(_numbers)}", items=[Item(text=text) for text in part.texts],
                load_wait=LoadWait(LOAD_WAIT_S), **self._wanted(name, part),
            )  # fmt: skip

    def _wanted(self, name: str, load: Load) -> dict[str, Any]:
        if OPERATIONS[name].asked == "score":
            return {"operation": "score", "query": Item(text=load.queries[0])}
        if name == "extract":
            threshold = json.loads((Path(self._folders[name]) / THRESHOLD).read_text())
            return {"operation": "extract", "labels": tuple(load.labels), "options": {"threshold": threshold}}
        return {"operation": "encode", "output_types": (OPERATIONS[name].asked,), "input_type": "document"}


def _model(name: str) -> str:
    return f"bench/{name.replace(' ', '-')}"


def read_answers(name: str, encoded: Sequence[bytes], load: Load) -> Answers:
    """Read the items of a pass."""
    items: list[Any] = [unpack(each) for each in encoded]
    if OPERATIONS[name].asked == "score":
        return {"scores": np.array([item["score"] for item in items], np.float32)}
    if OPERATIONS[name].asked == "dense":
        return {"vectors": np.stack([item["dense"]["values"] for item in items])}
    if name == "sparse":
        vectors = [item["sparse"] for item in items]
        rows = np.zeros((len(vectors), vectors[0]["dims"]), np.float32)
        for row, vector in zip(rows, vectors, strict=True):
            row[vector["indices"]] = vector["values"]
        return {"weights": rows}
    if name == "multivector":
        matrices = [item["multivector"]["values"] for item in items]
        return {"vectors": np.concatenate(matrices), "lengths": np.array([len(each) for each in matrices])}
    found = [(unit, each) for unit, item in enumerate(items) for each in item["entities"]]
    spans = [(unit, each["start"], each["end"], load.labels.index(each["label"])) for unit, each in found]
    scores = np.array([each["score"] for _, each in found], np.float32)
    return {"spans": np.array(spans, np.int64).reshape(-1, 4), "scores": scores}


def main() -> None:
    orders = Orders()
    with TemporaryDirectory() as scratch, asyncio.Runner() as loop:
        side: Side
        for order in orders:
            if "folders" in order:
                side = Side(order["folders"], Path(scratch))
                loop.run(side.start())
                orders.answer("started")
            elif "load" in order:
                orders.answer(loop.run(side.load(order["load"])))
            else:
                load = Load(**order["ask"])
                seconds, items = loop.run(side.ask(order["name"], load, order["size"]))
                if order.get("save"):
                    save(Path(order["save"]), read_answers(order["name"], items, load))
                orders.answer(seconds)


if __name__ == "__main__":
    main()
