"""The family `gliner`: entities, and relations between them, by the labels of each request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from sie_pytorch.forward import group_by_length, shares

from sie_core.contracts import Adapter, Item, ItemOutput, ModelFacts, Task, Token, Unit, device_errors
from sie_gliner.answers.merging import Found, merge
from sie_gliner.answers.reading import read
from sie_gliner.answers.relations import merge_relations
from sie_gliner.forward import Forward, Results
from sie_gliner.text.rows import Row, RowMaker
from sie_gliner.text.showing import show_tokens

Pass = tuple[list[int], Results]
"""The indices of the units of a pass, and its result."""

DEVICE_PADDING = 2048
"""Words of padding that cost an accelerator about as much as another pass, which launches some hundred kernels; an
estimate.
"""
BLANK = "blank"
"""The key of units without a row: texts without words, for which the model does not run."""


class GlinerExtractor(Adapter):
    """A loaded GLiNER checkpoint."""

    def __init__(self, rows: RowMaker, forward: Forward, facts: ModelFacts, threads: int) -> None:
        self._rows = rows
        self._forward = forward
        self._threads = threads
        # One operation of a pass is too small to be divided among threads.
        self._passes = ThreadPoolExecutor(threads, "sie-gliner", initializer=torch.set_num_threads, initargs=(1,))
        self.facts = facts

    def prepare(self, items: Sequence[Item], task: Task) -> Iterator[Unit]:
        """Split texts into words and words into tokens; one unit a window, and one without a row for a blank text.

        Labels and thresholds go with each unit, so requests share batches whatever they look for. Only the thresholds
        of relations enter the forward pass: it scores pairs of the entities above them.

        Raises:
            InvalidInput: An item, a label or an option is wrong.
        """
        for index, rows in enumerate(self._rows.rows(items, task)):
            place = -1
            for place, (row, truncated) in enumerate(rows):
                cost = len(row.ids) + (0 if place else sum(len(label) for label in row.prompt.rows))
                yield Unit(index, cost, _key(row), payload=row, tokens=cost, truncated=truncated, nbytes=row.nbytes)
            if place < 0:
                yield Unit(index, 1, BLANK, payload=None)

    def run(self, units: Sequence[Unit]) -> list[Pass]:
        """Run one batch of windows: all through the encoder, then the heads in passes of some.

        Raises:
            OutOfDeviceMemory: The device has no room for it.
            DeviceLost: Only a new process gets the device back.
        """
        if torch.get_num_threads() != self._threads:
            # A thread that used PyTorch before the load keeps the number it had then.
            torch.set_num_threads(self._threads)
        if units[0].payload is None:
            return []
        rows: list[Row] = [unit.payload for unit in units]
        with device_errors():
            encoded = self._forward.encode(rows)
            passes = self._split(rows)
            run = self._passes.map if self._forward.device.type == "cpu" and len(passes) > 1 else map
            results = run(lambda places: self._forward.answer(encoded, places), passes)
            return list(zip(passes, results, strict=True))

    def _split(self, rows: Sequence[Row]) -> list[list[int]]:
        """Split a batch into passes: one per thread on a CPU, elsewhere so that each has little padding."""
        words = [row.words for row in rows]
        if self._forward.device.type == "cpu":
            return shares(words, self._threads)[::-1]  # the longest first
        return group_by_length(words, free=DEVICE_PADDING)

    def await_device(self, units: Sequence[Unit], raw: list[Pass]) -> bool:
        """Wait for the results of every pass."""
        for _, results in raw:
            for copy in results.values():
                copy.land()
        return True

    def finish(self, units: Sequence[Unit], raw: list[Pass]) -> Sequence[ItemOutput]:
        """Read each window's entities, at its own threshold."""
        found: dict[int, ItemOutput] = {}
        for places, results in raw:
            arrays = {name: copy.wait() for name, copy in results.items()}
            found |= {place: read(units[place].payload, row, arrays) for row, place in enumerate(places)}
        if units[0].payload is None:
            return [ItemOutput(entities=()) for _ in units]
        return [found[place] for place in range(len(units))]

    def combine(self, units: Sequence[Unit], outputs: Sequence[ItemOutput]) -> ItemOutput:
        """Merge the windows of one text; see `sie_gliner.answers.merging`."""
        if units[0].payload is None:
            return outputs[0]
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
        """Free the weights now; the engine frees PyTorch's cache of them."""
        self._passes.shutdown()
        del self._forward


def _key(row: Row) -> Any:
    choice = row.choice
    return ("relations", choice.threshold) if choice.relation_labels else "entities"
