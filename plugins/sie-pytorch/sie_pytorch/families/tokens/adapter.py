"""The family `pytorch-tokens`: entities of texts by the labels of their tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from sie_text.entities import EntityPreparation

from sie_core.contracts import Item, ItemOutput, Task, Unit
from sie_pytorch.heads.composed.model import PackedModel
from sie_pytorch.heads.entities import EntityHead

if TYPE_CHECKING:
    from sie_pytorch.forward import BuiltRunner


class TokenClassifier(PackedModel):
    """A transformer that labels tokens."""

    def __init__(
        self,
        preparation: EntityPreparation,
        runner: BuiltRunner,
        head: EntityHead,
        *,
        gives_types: bool,
        device: torch.device,
        threads: int,
    ) -> None:
        super().__init__(runner, [head], device, threads, gives_types=gives_types)
        self._preparation = preparation
        self.tokenizer = preparation.tokenizer
        self._head = head

    def prepare(self, items: Sequence[Item], task: Task) -> Iterator[Unit]:
        """Tokenise; one unit a window of a text, its cost its tokens.

        Labels, thresholds and strategies go with each unit, so requests share batches whatever they ask for.

        Raises:
            InvalidInput: An item, a label or an option is wrong.
        """
        key = self._chosen(task, [self._head.output])
        for index, windows in enumerate(self._preparation.sequences(items, task)):
            for sequence in windows:
                unit = sequence.unit(index, key)
                unit.nbytes += sequence.finish_options.nbytes
                yield unit

    def combine(self, units: Sequence[Unit], outputs: Sequence[ItemOutput]) -> ItemOutput:
        """Read the entities of a text of several windows."""
        if len(outputs) == 1:
            return super().combine(units, outputs)
        return self._head.join([unit.payload.finish_options for unit in units], outputs)

    def unload(self) -> None:
        """Free the weights now, and PyTorch's cache of them."""
        del self._head
        super().unload()
