"""The family `pytorch-tokens`: entities of texts by the labels of their tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from sie_text.entities import EntityPreparation
from sie_text.heads import EntityHead, EntityUnits

from sie_pytorch.heads.composed.model import PackedModel

if TYPE_CHECKING:
    from sie_pytorch.forward import BuiltRunner


class TokenClassifier(EntityUnits, PackedModel):
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
        self._windows = preparation
        self.tokenizer = preparation.tokenizer
        self._head = head

    def unload(self) -> None:
        """Free the weights now, and PyTorch's cache of them."""
        del self._head
        super().unload()
