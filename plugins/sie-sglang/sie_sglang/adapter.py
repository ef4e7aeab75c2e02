"""The adapter: our token ids go to the engine, its vectors come back."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sie_text.adapter import TextAdapter
from sie_text.encode import TextPreparation

from sie_core.contracts import InvalidInput, Item, ItemOutput, Task, Unit
from sie_sglang.engine import Engine

AHEAD = 4
"""Bounds the batches that wait for the engine: the device thread launches the next while one runs."""

Vectors = NDArray[np.float32]


class SglangEncoder(TextAdapter):
    """An embedder whose forward pass, pooling and scaling to unit length run in an engine of its own."""

    def __init__(self, preparation: TextPreparation, engine: Engine, dims: int) -> None:
        """Keep the parts; vectors have `dims` dimensions."""
        self._preparation, self._engine, self._dims = preparation, engine, dims
        self.tokenizer, self.prompts = preparation.tokenizer, preparation.prompts
        self._threads = ThreadPoolExecutor(AHEAD, thread_name_prefix="sglang")

    def prepare(self, items: Sequence[Item], task: Task) -> Iterator[Unit]:
        """Tokenise; one unit an item, its cost its tokens.

        Raises:
            InvalidInput: An item or an option is wrong.
        """
        if task.options.get("normalize") is False:
            raise InvalidInput(
                "options.normalize is False, and the engine gives vectors of unit length; leave the option out.",
                param="options.normalize",
            )
        for index, sequence in enumerate(self._preparation.sequences(items, task)):
            yield sequence.unit(index, None)

    def run(self, units: Sequence[Unit]) -> Future[Vectors]:
        """Send one batch; return before the answer is there."""
        return self._threads.submit(self._vectors, [unit.payload.ids for unit in units])

    def await_device(self, units: Sequence[Unit], raw: Future[Vectors]) -> bool:
        """Wait for the answer.

        Raises:
            OutOfDeviceMemory: The engine has no room for the batch.
            InferenceError: As `Engine.ask`.
        """
        raw.result()
        return True

    def finish(self, units: Sequence[Unit], raw: Future[Vectors]) -> Sequence[ItemOutput]:
        """Give each text its row of an array that nothing else holds."""
        return [ItemOutput(dense=row, normalized=True) for row in raw.result()]

    def unload(self) -> None:
        """End the engine; its device memory is free afterwards."""
        self._engine.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _vectors(self, sequences: Sequence[Any]) -> Vectors:
        body = {"input": [list(ids) for ids in sequences], "encoding_format": "base64"}
        answer = self._engine.ask("/v1/embeddings", body)
        try:
            rows = {
                each["index"]: np.frombuffer(b64decode(each["embedding"], validate=True), "<f4")
                for each in answer["data"]
            }
            made = np.stack([rows[place] for place in range(len(sequences))])
        except (KeyError, TypeError, ValueError):
            raise self._engine.wrong("gave an answer that is no list of vectors") from None
        if len(answer["data"]) != len(sequences) or made.shape[1] != self._dims:
            raise self._engine.wrong(f"gave {len(answer['data'])} vectors of {made.shape[1]} dimensions")
        return made
