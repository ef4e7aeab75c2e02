"""The adapters: our token ids go to the engine, its vectors and log-probabilities come back."""

from __future__ import annotations

import secrets
import threading
import weakref
from abc import abstractmethod
from base64 import b64decode
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sie_text.adapter import TextAdapter
from sie_text.encode import TextPreparation
from sie_text.heads import Classifier, PairHead, PairUnits, Spans
from sie_text.pairs import PairPreparation
from sie_text.sequences import PackedBatch

from sie_core.contracts import InvalidInput, Item, ItemOutput, Lora, ModelCard, Task, Unit
from sie_sglang.engine import Engine
from sie_sglang.loras import require_fit

AHEAD = 4
"""Bounds the batches that wait for the engine: the device thread launches the next while one runs."""

Rows = NDArray[np.float32]


class OnEngine(TextAdapter):
    """An adapter whose batches run on an engine."""

    def attach(self, engine: Engine) -> None:
        """Use an engine; `unload` ends it."""
        self._engine = engine
        self._threads = ThreadPoolExecutor(AHEAD, thread_name_prefix="sglang")

    @abstractmethod
    def ask(self, units: Sequence[Unit]) -> Rows:
        """Ask the engine; return a float32 row for each unit.

        Raises:
            OutOfDeviceMemory: The engine has no room for the batch.
            InferenceError: As `Engine.ask`, and `QUEUE_UNAVAILABLE` for an answer that is none.
        """

    def run(self, units: Sequence[Unit]) -> Future[Rows]:
        """Send one batch; return before the answer is there."""
        return self._threads.submit(self.ask, units)

    def await_device(self, units: Sequence[Unit], raw: Future[Rows]) -> bool:
        """Wait for the answer.

        Raises:
            OutOfDeviceMemory: As `ask`.
            InferenceError: As `ask`.
        """
        raw.result()
        return True

    def unload(self) -> None:
        """End the engine; its device memory is free afterwards."""
        self._engine.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


class SglangEncoder(OnEngine):
    """An embedder whose forward pass, pooling and scaling to unit length run in an engine of its own."""

    def __init__(
        self, preparation: TextPreparation, engine: Engine, dims: int, card: ModelCard, most_rank: int
    ) -> None:
        """Keep the parts; vectors have `dims` dimensions, and LoRA adapters at most the rank `most_rank`."""
        self.attach(engine)
        self._preparation, self._dims = preparation, dims
        self._card, self._most_rank = card, most_rank
        self.tokenizer, self.prompts = preparation.tokenizer, preparation.prompts
        self._at_engine: dict[Unit, str] = {}

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
            yield sequence.unit(index, task.lora)

    def finish(self, units: Sequence[Unit], raw: Future[Rows]) -> Sequence[ItemOutput]:
        """Give each text its row of an array that nothing else holds."""
        return [ItemOutput(dense=row, normalized=True) for row in raw.result()]

    def ask(self, units: Sequence[Unit]) -> Rows:
        """Ask for the vectors, `[units, dims]`."""
        request = secrets.token_hex(16)
        # The engine aborts every id that begins with the one it is told, if it still has that one: the longest text's.
        ids = [*(f"{request}-{place}" for place in range(len(units) - 1)), request]
        body = {"input": [unit.payload.ids.tolist() for unit in units], "encoding_format": "base64", "rid": ids}
        if isinstance(lora := units[0].key, Lora):
            body["lora_path"] = lora.payload
        self._at_engine[units[0]] = request
        try:
            return self._vectors(self._engine.ask("/v1/embeddings", body), len(units))
        finally:
            del self._at_engine[units[0]]

    def abandon(self, units: Sequence[Unit]) -> None:
        """Abort the batch at the engine."""
        if (request := self._at_engine.get(units[0])) is not None:
            threading.Thread(target=self._engine.abort, args=(request,), daemon=True).start()

    def load_lora(self, name: str, folder: Path) -> Lora:
        """Have the engine load an adapter. It takes no device memory beyond what the engine reserved at its start.

        Raises:
            ModelLoadError: It is no plain LoRA, does not fit, or is damaged.
            InferenceError: The engine is down.
        """
        require_fit(folder, self._card, self._most_rank)
        lora = Lora(name, self._engine.load_lora(folder))
        # On a thread of its own: the last reference may be lost on the event loop.
        unload = threading.Thread(target=self._engine.unload_lora, args=(lora.payload,), daemon=True)
        weakref.finalize(lora, unload.start).atexit = False
        return lora

    def _vectors(self, answer: Any, count: int) -> Rows:
        try:
            rows = {
                each["index"]: np.frombuffer(b64decode(each["embedding"], validate=True), "<f4")
                for each in answer["data"]
            }
            made = np.stack([rows[place] for place in range(count)])
        except (KeyError, TypeError, ValueError):
            raise self._engine.wrong("gave an answer that is no list of vectors") from None
        if len(answer["data"]) != count or made.shape[1] != self._dims:
            raise self._engine.wrong(f"gave {len(answer['data'])} vectors of {made.shape[1]} dimensions")
        return made


class EngineLogits(Classifier):
    """Stands for the engine among a head's parts: what reaches the head are logits already."""

    labels = 1
    memory_bytes = 0

    def __call__(self, states: Any, spans: Spans) -> Any:
        """Pass them on."""
        return states


class SglangReranker(PairUnits, OnEngine):
    """A reranker made of a language model: the score is the log-odds between two tokens after the pair."""

    def __init__(
        self, model: str, preparation: PairPreparation, head: PairHead, engine: Engine, tokens: tuple[int, int]
    ) -> None:
        """Keep the parts; `tokens` are the answers for a match and for no match."""
        super().__init__([head])
        self.attach(engine)
        self._model, self._preparation, self._head, self._tokens = model, preparation, head, list(tokens)
        self.tokenizer = preparation.tokenizer

    def finish(self, units: Sequence[Unit], raw: Future[Rows]) -> Sequence[ItemOutput]:
        """Give each pair its score."""
        return self._head.apply(raw.result(), PackedBatch([unit.payload for unit in units]))

    def ask(self, units: Sequence[Unit]) -> Rows:
        """Ask for the log-odds, `[units, 1]`."""
        body = {
            "query": [],
            "items": [unit.payload.ids.tolist() for unit in units],
            "label_token_ids": self._tokens,
            "return_token_logprobs": True,
        }
        answer = self._engine.ask("/v1/score", body)
        try:
            made = np.array(answer["token_logprobs"], dtype=np.float64)
        except (KeyError, TypeError, ValueError):
            raise self._engine.wrong("gave an answer that is no list of log-probabilities") from None
        if made.shape != (len(units), 2):
            raise self._engine.wrong(f"gave log-probabilities of the shape {made.shape}")
        return (made[:, :1] - made[:, 1:]).astype(np.float32)
