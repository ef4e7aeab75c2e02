"""The family `pytorch-pairs`: models that read two texts at once, for `score` and for `extract` by labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from sie_text.heads import PairHead, PairUnits
from sie_text.pairs import PairPreparation

from sie_pytorch.heads.composed.model import PackedModel

if TYPE_CHECKING:
    from sie_pytorch.forward import BuiltRunner


class PairModel(PairUnits, PackedModel):
    """A cross-encoder, a reranker made of a language model, or an entailment classifier."""

    def __init__(
        self,
        model: str,
        preparation: PairPreparation,
        runner: BuiltRunner,
        head: PairHead,
        *,
        gives_types: bool,
        device: torch.device,
        threads: int,
    ) -> None:
        super().__init__(runner, [head], device, threads, gives_types=gives_types)
        self._model = model
        self._pairs = preparation
        self.tokenizer = preparation.tokenizer
        self._head = head

    def unload(self) -> None:
        """Free the weights now, and PyTorch's cache of them."""
        del self._head
        super().unload()
