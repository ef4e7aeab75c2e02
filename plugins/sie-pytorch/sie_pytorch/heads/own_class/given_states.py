"""A stand-in for the base model of a transformers class: returns states that were computed elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions


@dataclass
class _Outputs(BaseModelOutputWithPoolingAndCrossAttentions):  # type: ignore[misc]
    """The outputs of base models, with fields that classes with a decoder pass on unread."""

    decoder_hidden_states: None = None
    decoder_attentions: None = None
    encoder_last_hidden_state: None = None
    encoder_hidden_states: None = None
    encoder_attentions: None = None


class GivenStates(nn.Module):
    """Returns the states it holds, and the output of the base model's pooler if that is kept."""

    def __init__(self, base: Any, keeps: Collection[str]) -> None:
        """Keep those parts of `base` that the class reads itself: `embeddings`, or `pooler` with its activation."""
        super().__init__()
        kept = {name: getattr(base, name, None) for name in keeps}
        self.embeddings: Any = kept.get("embeddings")
        self.pooler: nn.Module | None = kept.get("pooler")
        self.pooler_activation: nn.Module | None = kept.get("pooler_activation")
        self._states = torch.empty(0)

    @contextmanager
    def holding(self, states: torch.Tensor) -> Iterator[None]:
        """Return `states`, `[sequences, tokens, hidden]`, as long as the block runs."""
        self._states = states
        try:
            yield
        finally:
            self._states = torch.empty(0)

    def forward(self, *ignored: Any, **others: Any) -> _Outputs:
        """Return the states, whatever the class asks with."""
        pooled = None
        if self.pooler is not None:
            # ALBERT's pooler is a bare linear layer with a separate activation.
            bare = isinstance(self.pooler, nn.Linear)
            pooled = self.pooler(self._states[:, 0] if bare else self._states)
            pooled = pooled if self.pooler_activation is None else self.pooler_activation(pooled)
        return _Outputs(last_hidden_state=self._states, pooler_output=pooled)
