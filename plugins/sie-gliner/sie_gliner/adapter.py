"""The family `gliner`: entities, and relations between them, by the labels of each request."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from sie_core.contracts import Adapter, Item, ItemOutput, LoadContext, ModelFacts, Task, Token, Unit, device_errors
from sie_gliner.batches import OnHost
from sie_gliner.building import build
from sie_gliner.chunks import DEVICE_PASS, chunks, of_equal_words, shares
from sie_gliner.encoders import packed_encoder
from sie_gliner.forward import Forward
from sie_gliner.merging import Found, merge
from sie_gliner.reading import read
from sie_gliner.relations import merge_relations
from sie_gliner.rows import Row, RowMaker
from sie_gliner.showing import show_tokens

Pass = tuple[list[int], OnHost]
"""The places of the units of a pass, and what it gave."""


class GlinerExtractor(Adapter):
    """A loaded GLiNER checkpoint."""

    def __init__(self, rows: RowMaker, forward: Forward, facts: ModelFacts, threads: int) -> None:
        self._rows = rows
        self._forward = forward
        self._threads = threads
        self._passes = ThreadPoolExecutor(threads, "sie-gliner", initializer=torch.set_num_threads, initargs=(1,))
        self.facts = facts

    @classmethod
    def load(cls, context: LoadContext) -> GlinerExtractor:
        """Load the checkpoint from safetensors, and prove that its rows are those of gliner.

        Raises:
            ModelLoadError: With the failure's class.
            OutOfDeviceMemory: The device has no room.
            DeviceLost: Only a new process gets the device back.
        """
        with device_errors():
            rows, forward, facts = build(context)
        return cls(rows, forward, facts, context.threads)

    def prepare(self, items: Sequence[Item], task: Task) -> Sequence[Unit]:
        """Split texts into words and words into tokens; one unit a window.

        Labels and thresholds go with each unit, so requests share batches whatever they look for. The thresholds of
        relations alone enter the forward pass: it looks at pairs of the entities above them.

        Raises:
            InvalidInput: An item, a label or an option is wrong.
        """
        units = []
        for index, rows in enumerate(self._rows.rows(items, task)):
            labels = sum(len(label) for label in rows[0][0].prompt.rows)
            for place, (row, truncated) in enumerate(rows):
                cost = len(row.ids) + (0 if place else labels)
                units.append(Unit(index, cost, _key(row), row, cost, truncated))
        return units

    def run(self, units: Sequence[Unit]) -> list[Pass]:
        """Run one batch of windows; on a CPU in passes, each on a thread of its own.

        One operation of a pass is too small to be shared between threads, unless there is but one pass.

        Raises:
            OutOfDeviceMemory: The device has no room for it.
            DeviceLost: Only a new process gets the device back.
        """
        if torch.get_num_threads() != self._threads:
            # A thread that used PyTorch before the load keeps the number it had then.
            torch.set_num_threads(self._threads)
        rows: list[Row] = [unit.payload for unit in units]
        together = self._together(rows)
        on_threads = self._forward.device.type == "cpu" and min(len(together), self._threads) > 1

        def run_pass(places: list[int]) -> Pass:
            return places, self._forward([rows[place] for place in places])

        with device_errors():
            if not on_threads:
                return [run_pass(places) for places in together]
            return list(self._passes.map(run_pass, reversed(together)))  # the longest first

    def _together(self, rows: Sequence[Row]) -> list[list[int]]:
        """Cut a batch into passes: padding costs as much as text does."""
        groups = of_equal_words(rows) if self._forward.alike else [list(range(len(rows)))]
        return [
            [group[place] for place in places]
            for group in groups
            for places in self._passes_of([rows[place] for place in group])
        ]

    def _passes_of(self, rows: Sequence[Row]) -> list[list[int]]:
        """Cut rows that may be padded to one length into passes."""
        if self._forward.device.type != "cpu":
            return list(chunks(rows, DEVICE_PASS))
        padded = packed_encoder(self._forward.model) is None
        return list(chunks(rows)) if padded else shares(rows, self._threads)

    def await_device(self, units: Sequence[Unit], raw: list[Pass]) -> bool:
        """Wait for the results of every pass."""
        for _, results in raw:
            results.land()
        return True

    def finish(self, units: Sequence[Unit], raw: list[Pass]) -> Sequence[ItemOutput]:
        """Read each window's entities, at its own threshold."""
        found: dict[int, ItemOutput] = {}
        for places, waiting in raw:
            results = waiting.wait()
            found |= {place: read(units[place].payload, row, results) for row, place in enumerate(places)}
        return [found[place] for place in range(len(units))]

    def combine(self, units: Sequence[Unit], outputs: Sequence[ItemOutput]) -> ItemOutput:
        """Merge the windows of one text; the rule stands in `sie_gliner.merging`."""
        rows: list[Row] = [unit.payload for unit in units]
        windows = [
            Found(output.entities or (), row.own, int(row.ends[-1])) for row, output in zip(rows, outputs, strict=True)
        ]
        entities = merge(windows, flat=rows[0].choice.flat)
        relations = merge_relations([output.relations for output in outputs], entities)
        return ItemOutput(entities=tuple(entities), relations=relations)

    def tokenize(self, texts: Sequence[str], *, special: bool, most: int | None = None) -> Sequence[Sequence[Token]]:
        """List the tokens of texts, without labels.

        Raises:
            InvalidInput: A text is not Unicode.
        """
        return show_tokens(self._rows.words, self._rows.tokens, texts, special=special, most=most)

    def unload(self) -> None:
        """Free the weights now, and PyTorch's cache of them."""
        device = self._forward.device
        self._passes.shutdown()
        del self._forward
        if device.type == "cuda":
            torch.cuda.empty_cache()


def _key(row: Row) -> Any:
    choice = row.choice
    return ("relations", choice.threshold) if choice.relation_labels else "entities"
