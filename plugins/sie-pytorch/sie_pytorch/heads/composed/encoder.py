"""Text models with any heads, packed if their architecture allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from sie_text.encode import TextPreparation
from sie_text.heads import Head

from sie_core.contracts import Item, Task, Unit
from sie_pytorch.heads.composed.model import PackedModel

if TYPE_CHECKING:
    from sie_pytorch.forward import BuiltRunner


class TextEncoder(PackedModel):
    """A transformer of single texts with its heads: `encode` asks for vectors, `extract` for classifications."""

    def __init__(
        self,
        preparation: TextPreparation,
        runner: BuiltRunner,
        heads: Iterable[Head],
        device: torch.device,
        threads: int,
        *,
        gives_types: bool = False,
    ) -> None:
        """Keep the parts; `preparation` makes token sequences of items, see `PackedModel` for the others."""
        super().__init__(runner, heads, device, threads, gives_types=gives_types)
        self._preparation = preparation
        self.tokenizer = preparation.tokenizer
        self.prompts = preparation.prompts

    def prepare(self, items: Sequence[Item], task: Task) -> Iterator[Unit]:
        """Tokenise; one unit an item, its cost its tokens.

        Raises:
            InvalidInput: An item or an option is wrong.
        """
        return self._text_units(self._preparation, items, task)
