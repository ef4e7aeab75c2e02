"""The adapter of the fake family: the four methods of the contract over hashed vectors, with faults where asked.

Faults live in `sie_fake.faults`, vectors in `sie_fake.vectors`; what remains is what any text family does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sie_core.contracts import (
    Adapter,
    InvalidInput,
    Item,
    ItemOutput,
    LoadContext,
    ModelFacts,
    ModelLoadError,
    OutputType,
    Task,
    Truncation,
    Unit,
)
from sie_fake import vectors
from sie_fake.faults import LoadFaults, RunFaults, crash, poison
from sie_fake.options import OPTIONS
from sie_fake.record import RECORD, Event

PROMPTS = {"query": "query:", "document": "passage:"}
RUN_OPTIONS = frozenset(option.name for option in OPTIONS if option.stage == "run")
DEFAULT_LENGTH = 512


@dataclass(frozen=True, slots=True)
class Row:
    """The payload of a unit."""

    text: str
    words: tuple[str, ...]
    task: Task


class FakeAdapter(Adapter):
    """A loaded fake. Its tokens are the words between white space, prompts included."""

    def __init__(self, context: LoadContext) -> None:
        options = context.model.profile.loadtime
        self._model = context.model.id
        self._journal = Path(options["journal"]) if options.get("journal") else None
        self._faults = RunFaults.of(options)
        self._length = context.model.config.max_sequence_length or DEFAULT_LENGTH
        self._stream = ThreadPoolExecutor(1, "fake-device") if context.device.asynchronous else None
        self.facts = _facts(context, self._length)
        self._note("load")

    @classmethod
    def load(cls, context: LoadContext) -> FakeAdapter:
        """Load in no time, or as slowly and as badly as the options say.

        Raises:
            ModelLoadError: The config declares no output, or the options ask for a failure.
            OutOfDeviceMemory: The options ask for it.
        """
        LoadFaults.of(context.model.profile.loadtime).strike(context)
        return cls(context)

    def prepare(self, items: Sequence[Item], task: Task) -> Sequence[Unit]:
        """Split texts into words and cut them to the model's length; one unit a text, or one a window.

        Raises:
            InvalidInput: An item has no text, or a text is too long and `truncate` is `error`.
        """
        return [unit for position, item in enumerate(items) for unit in self._units(position, item, task)]

    def run(self, units: Sequence[Unit]) -> Any:
        """Hash every row; on the emulated accelerator, return before that is done.

        Raises:
            OutOfDeviceMemory: The options ask for it.
        """
        rows = [unit.payload for unit in units]
        cost = sum(unit.cost for unit in units)
        self._note("run", tuple(row.text for row in rows), cost)
        self._faults.strike([row.text for row in rows], cost, rows[0].task.options)
        if self._stream is None:
            return self._compute(rows, cost)
        return self._stream.submit(self._compute, rows, cost)

    def finish(self, units: Sequence[Unit], raw: Any) -> Sequence[ItemOutput]:
        """Wait for the emulated accelerator; scale the dense vectors."""
        outputs: list[ItemOutput] = raw.result() if isinstance(raw, Future) else raw
        for unit, output in zip(units, outputs, strict=True):
            options = unit.payload.task.options
            crash(unit.payload.text, options.get("finish_crash_text"), "finish")
            if output.dense is not None and "scale" in options:
                output.dense, output.normalized = output.dense * np.float32(options["scale"]), False
        return outputs

    def combine(self, units: Sequence[Unit], outputs: Sequence[ItemOutput]) -> ItemOutput:
        """Merge the windows of one text."""
        if len(outputs) == 1:
            return outputs[0]
        dense = [output.dense for output in outputs if output.dense is not None]
        sparse = [output.sparse for output in outputs if output.sparse is not None]
        tokens = [output.multivector for output in outputs if output.multivector is not None]
        return ItemOutput(
            dense=vectors.merged_dense(dense) if dense else None,
            sparse=vectors.merged_sparse(sparse) if sparse else None,
            multivector=np.concatenate(tokens) if tokens else None,
            normalized=True,
        )

    def unload(self) -> None:
        """Stop the emulated accelerator."""
        if self._stream is not None:
            self._stream.shutdown()
        self._note("unload")

    def _note(self, kind: Any, texts: tuple[str, ...] = (), cost: int = 0) -> None:
        RECORD.add(Event(kind, self._model, texts, cost), self._journal)

    def _units(self, position: int, item: Item, task: Task) -> list[Unit]:
        words = _words(position, item, task)
        truncated = None
        if len(words) > self._length:
            if task.truncate == "error":
                raise InvalidInput(
                    f"the text has {len(words)} tokens and {self._model} takes {self._length}; "
                    "shorten it or allow truncation",
                    param=f"items[{position}].text",
                    code="INPUT_TOO_LONG",
                )
            truncated = Truncation(len(words), self._length)
            words = words[-self._length :] if task.truncate == "start" else words[: self._length]
        size = task.options.get("window") or len(words) or 1
        windows = [words[start : start + size] for start in range(0, len(words), size)] or [[]]
        units = [self._unit(position, window, task) for window in windows]
        units[0].truncated = truncated
        return units

    def _unit(self, position: int, words: Sequence[str], task: Task) -> Unit:
        run_options = tuple(sorted((n, v) for n, v in task.options.items() if n in RUN_OPTIONS))
        return Unit(
            item=position,
            cost=max(1, len(words)),
            key=(task.operation, task.output_types, run_options),
            payload=Row(" ".join(words), tuple(words), task),
            tokens=len(words),
        )

    def _compute(self, rows: Sequence[Row], cost: int) -> list[ItemOutput]:
        self._faults.linger(cost, rows[0].task.options)
        return [self._output(row) for row in rows]

    def _output(self, row: Row) -> ItemOutput:
        salt = row.task.options.get("salt", "")
        words = [salt + word for word in row.words] or [salt]
        output, dims = ItemOutput(normalized=True), self.facts.dims
        if "dense" in row.task.output_types:
            output.dense = vectors.dense(salt + row.text, dims["dense"])
        if "sparse" in row.task.output_types:
            output.sparse = vectors.sparse(words, dims["sparse"])
        if "multivector" in row.task.output_types:
            output.multivector = vectors.multivector(words, dims["multivector"])
        return poison(output, row.text, row.task.options.get("nan_text"))


def _words(position: int, item: Item, task: Task) -> list[str]:
    if item.token_ids is not None:
        text = " ".join(str(token) for token in item.token_ids)
    elif item.text is not None:
        text = item.text
    else:
        raise InvalidInput("the item has no text, and a fake model reads nothing else", param=f"items[{position}].text")
    crash(text, task.options.get("prepare_crash_text"), "prepare")
    prompt = PROMPTS[task.input_type] if task.input_type else ""
    words = f"{task.instruction or ''} {prompt} {text}".split()
    return [word.lower() for word in words] if task.options.get("lowercase") else words


def _facts(context: LoadContext, length: int) -> ModelFacts:
    config = context.model.config
    declared: Mapping[str, Any] = config.tasks.get("encode") or {}
    outputs: tuple[OutputType, ...] = ("dense", "sparse", "multivector")
    dims = {name: int(declared[name]["dim"]) for name in outputs if declared.get(name, {}).get("dim")}
    if not dims:
        raise ModelLoadError(
            "CONFIG",
            f"the config of {context.model.id} declares no output of encode; "
            "write tasks: {encode: {dense: {dim: 32}}} into it",
        )
    sizes = (declared.get("dense") or {}).get("matryoshka_dims") or ()
    return ModelFacts(
        outputs=tuple(dims),
        dims=dims,
        matryoshka_dims=tuple(sorted({*sizes, dims["dense"]})) if sizes else (),
        max_sequence_length=length,
        notes={"weights": "none: vectors are hashes of the texts"},
    )
