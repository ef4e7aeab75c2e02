"""The adapter of the fake family: the four methods of the contract over hashed vectors, with optional faults.

Faults live in `sie_fake.faults`, vectors, scores and entities in `sie_fake.outputs`; the rest is common to all
families.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import (
    Adapter,
    Item,
    ItemOutput,
    LoadContext,
    Lora,
    ModelFacts,
    ModelLoadError,
    Operation,
    OutputType,
    Task,
    Token,
    Unit,
)
from sie_fake.device import stream
from sie_fake.faults import LoadFaults, RunFaults, crash, exhaust, poison, wait_while_held
from sie_fake.inputs.rows import Reader, Row, show_words
from sie_fake.loras import FakeFactors, load_lora
from sie_fake.memory import Held, allocate
from sie_fake.options import OPTIONS
from sie_fake.outputs import reading, vectors
from sie_fake.record import RECORD, Event

RUN_OPTIONS = frozenset(option.name for option in OPTIONS if option.stage == "run")
DEFAULT_LENGTH = 512
DEFAULT_CHUNK = 1600
"""A tenth of a second at 16 kHz."""
Computed = tuple[ItemOutput, NDArray[np.intp] | None]
"""A run's result for a row: its output, with one vector per distinct word, and the index of each word's vector."""


class FakeAdapter(Adapter):
    """A loaded fake. Its tokens are the words between white space, prompts included."""

    def __init__(self, context: LoadContext) -> None:
        options = context.model.profile.loadtime
        self._model = context.model.id
        self._recorded = options.get("record", True)
        self._journal = Path(options["journal"]) if options.get("journal") else None
        self._faults = RunFaults.of(options)
        length = context.model.config.max_sequence_length or DEFAULT_LENGTH
        chunk = options.get("audio_chunk", DEFAULT_CHUNK)
        self._reader = Reader(self._model, length, chunk, options.get("image_hold"))
        self.facts = _facts(context, length)
        self._device = context.device
        self._loras: WeakSet[FakeFactors] = WeakSet()
        self._lora_hold = options.get("lora_hold")
        self._prepare_hold = options.get("prepare_hold")
        self._unit_bytes = options.get("unit_bytes", 0)
        self._bytes_per_cost = options.get("run_bytes_per_cost", 0)
        self._memory = allocate(self.facts.memory_bytes, context.device)
        self._note("load")

    def prepare(self, items: Sequence[Item], task: Task) -> Iterator[Unit]:
        """Split texts into words and cut them to the model's length; one unit a text or pair, or one a window.

        Raises:
            InvalidInput: An item holds nothing a fake reads, or a text is too long and `truncate` is `error`.
        """
        wait_while_held(self._prepare_hold)
        query = self._reader.query(task)
        for position, item in enumerate(items):
            yield from self._units(position, item, task, query)

    def run(self, units: Sequence[Unit]) -> Any:
        """Hash every row; on the emulated accelerator, return before that is done.

        Raises:
            OutOfDeviceMemory: The options ask for it, or less memory is left than they claim for the run.
        """
        rows = [unit.payload for unit in units]
        cost = sum(unit.cost for unit in units)
        self._note("run", tuple(row.text for row in rows), cost)
        self._faults.strike([row.text for row in rows], cost, rows[0].task.options)
        working = allocate(cost * self._bytes_per_cost, self._device)
        if not self._device.asynchronous:
            return self._compute(rows, cost, working)
        return stream().submit(self._compute, rows, cost, working)

    def await_device(self, units: Sequence[Unit], raw: Any) -> bool:
        """Wait for the emulated accelerator."""
        if isinstance(raw, Future):
            wait([raw])
        return True

    def finish(self, units: Sequence[Unit], raw: Any) -> Sequence[ItemOutput]:
        """Scale dense vectors, gather those of words, drop unsure entities."""
        computed: list[Computed] = raw.result() if isinstance(raw, Future) else raw
        for unit, (output, places) in zip(units, computed, strict=True):
            options = unit.payload.task.options
            crash(unit.payload.text, options.get("finish_crash_text"), "finish")
            exhaust(unit.payload.text, options.get("finish_oom_text"), "finish")
            if output.dense is not None and "scale" in options:
                output.dense, output.normalized = output.dense * np.float32(options["scale"]), False
            if output.multivector is not None and places is not None:
                output.multivector = vectors.gathered(output.multivector, places)
            if output.entities is not None:
                reading.above_threshold(output, options.get("threshold", reading.THRESHOLD))
        return [output for output, _ in computed]

    def combine(self, units: Sequence[Unit], outputs: Sequence[ItemOutput]) -> ItemOutput:
        """Merge the windows of one text."""
        if len(outputs) == 1:
            return outputs[0]
        scores = [output.score for output in outputs if output.score is not None]
        if scores:
            return ItemOutput(score=max(scores))
        if outputs[0].entities is not None:
            return reading.merged(outputs)
        dense = [output.dense for output in outputs if output.dense is not None]
        sparse = [output.sparse for output in outputs if output.sparse is not None]
        tokens = [output.multivector for output in outputs if output.multivector is not None]
        return ItemOutput(
            dense=vectors.merged_dense(dense) if dense else None,
            sparse=vectors.merged_sparse(sparse) if sparse else None,
            multivector=np.concatenate(tokens) if tokens else None,
            normalized=True,
        )

    def load_lora(self, name: str, folder: Path) -> Lora:
        """Take the memory of a LoRA adapter, whose name then changes every vector.

        Raises:
            OutOfDeviceMemory: Not enough is left.
        """
        wait_while_held(self._lora_hold)
        self._note("lora", (name,))
        lora = load_lora(name, folder, self._device)
        self._loras.add(lora.payload)
        return lora

    def tokenize(self, texts: Sequence[str], *, special: bool, most: int | None = None) -> Sequence[Sequence[Token]]:
        """List the words of texts; there are no special ones."""
        wait_while_held(self._prepare_hold)
        return [show_words(text, most) for text in texts]

    def unload(self) -> None:
        """Release the memory, including that of LoRA adapters."""
        for held in (self._memory, *self._loras):
            held.free()
        self._note("unload")

    def _note(self, kind: Any, texts: tuple[str, ...] = (), cost: int = 0) -> None:
        if self._recorded:
            RECORD.add(Event(kind, self._model, texts, cost), self._journal)

    def _units(self, position: int, item: Item, task: Task, query: Sequence[str]) -> list[Unit]:
        rows, truncated = self._reader.rows(item, f"items[{position}]", task, query)
        if self._unit_bytes:
            rows = [replace(row, ballast=bytes(self._unit_bytes)) for row in rows]
        run_options = tuple(sorted((n, v) for n, v in task.options.items() if n in RUN_OPTIONS))
        key = (task.operation, task.output_types, run_options)
        units = [Unit(position, row.cost, key, payload=row, tokens=row.tokens, nbytes=self._unit_bytes) for row in rows]
        units[0].truncated = truncated
        return units

    def _compute(
        self, rows: Sequence[Row], cost: int, working: Held, pause: Callable[[float], None] = time.sleep
    ) -> list[Computed]:
        try:
            self._faults.linger(cost, rows[0].task.options, pause)
            return [self._output(row, rows[0].task.lora) for row in rows]
        finally:
            working.free()

    def _output(self, row: Row, lora: Lora | None) -> Computed:
        """Compute a row; as with real weights, a run applies one LoRA adapter to all its rows."""
        places = None
        if row.task.operation == "score":
            output = ItemOutput(score=reading.score(row.query, (*row.words, *row.media.words)))
        elif row.task.operation == "extract":
            output = reading.extract(row)
        else:
            output, places = self._encoded(row, lora)
        return poison(output, row.text, row.task.options.get("nan_text")), places

    def _encoded(self, row: Row, lora: Lora | None) -> Computed:
        salt = row.task.options.get("salt", "") + (lora.name if lora else "")
        words = [salt + word for word in (*row.words, *row.media.words)] or [salt]
        output, dims, places = ItemOutput(normalized=True), self.facts.dims, None
        if "dense" in row.task.output_types:
            output.dense = vectors.dense(" ".join([salt + row.text, *row.media.words]), dims["dense"])
        if "sparse" in row.task.output_types:
            output.sparse = vectors.sparse(words, dims["sparse"])
        if "multivector" in row.task.output_types:
            output.multivector, places = vectors.distinct(words, dims["multivector"])
        return output, places


def load(context: LoadContext) -> FakeAdapter:
    """Load at once, or as slowly and badly as the options say.

    Raises:
        ModelLoadError: The config declares no output, or the options ask for a failure.
        OutOfDeviceMemory: The options ask for it, or less memory is left than they claim.
    """
    LoadFaults.of(context.model.profile.loadtime).strike(context)
    return FakeAdapter(context)


def _facts(context: LoadContext, length: int) -> ModelFacts:
    config = context.model.config
    declared: Mapping[str, Any] = config.tasks.get("encode") or {}
    outputs: tuple[OutputType, ...] = ("dense", "sparse", "multivector")
    dims = {name: int(declared[name]["dim"]) for name in outputs if declared.get(name, {}).get("dim")}
    operations: list[Operation] = ["encode"] if dims else []
    operations += [name for name in ("score", "extract") if name in config.tasks]
    if not operations:
        raise ModelLoadError(
            "CONFIG",
            f"the config of {context.model.id} declares no output of encode, no score and no extract; "
            "write tasks: {encode: {dense: {dim: 32}}} into it",
        )
    sizes = (declared.get("dense") or {}).get("matryoshka_dims") or ()
    extract: Mapping[str, Any] = config.tasks.get("extract") or {}
    return ModelFacts(
        outputs=tuple(dims),
        operations=tuple(operations),
        inputs=config.inputs,
        takes_labels=extract.get("labels", "optional"),
        takes_schema="extract" in operations,
        dims=dims,
        matryoshka_dims=tuple(sorted({*sizes, dims["dense"]})) if sizes else (),
        max_sequence_length=length,
        memory_bytes=context.model.profile.loadtime.get("memory_bytes", 0),
        takes_lora=context.model.profile.loadtime.get("takes_lora", False),
        notes={"weights": "none: vectors are hashes of the texts"},
    )
