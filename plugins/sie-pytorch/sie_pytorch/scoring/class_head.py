"""A transformers class without its base model: what it does after, on states computed elsewhere.

The class's own forward pass runs, so whatever pooler, dense layer, late pooling or softcap the class has is there, for
every architecture. It knows no checkpoint, no text and no request.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions

from sie_pytorch.pooling import Spans, pool
from sie_pytorch.runners.padded import group_by_length

Gathering = Literal["cls", "lasttoken", "unpadded", "mean", "tokens"]
"""Which states of a sequence a class reads: its first, its last, the last that is no padding token's, their mean, or
each."""
GATHERINGS: tuple[Gathering, ...] = ("cls", "lasttoken", "unpadded", "mean", "tokens")
"""In the order they are tried: one state a sequence is cheap, all of them must be padded."""


class ClassHead:
    """What a class for classification or language modelling does after its base model, in float32."""

    def __init__(self, model: Any, gathering: Gathering, labels: int, padding: int | None = None) -> None:
        """Share the modules of `model` but its base model.

        Args:
            model: The model of the class, in evaluation mode.
            gathering: What it is given of each sequence.
            labels: How many logits it gives.
            padding: The padding token of the checkpoint.
        """
        self._given = _GivenStates(model.base_model)
        self._model = copy.copy(model)
        self._model._modules = {**model._modules, model.base_model_prefix: self._given}
        self.gathering = gathering
        self.labels = labels
        self.padding = padding if gathering == "unpadded" else None
        """The token that is passed over at the end of a sequence; see `find_spans`."""
        self.memory_bytes = sum(weight.nbytes for weight in self._model.parameters())

    def to(self, device: torch.device) -> ClassHead:
        """Move it to `device`."""
        self._model.to(device)
        return self

    def __call__(self, states: torch.Tensor, spans: Spans) -> torch.Tensor:
        """Turn flat states `[total_tokens, hidden]` into float32 logits `[sequences, labels]`."""
        if self.gathering != "tokens":
            mode = "lasttoken" if self.gathering == "unpadded" else self.gathering
            return self._classify(pool(states, spans, (mode,))[:, None])
        logits = torch.empty((len(spans.lengths), self.labels), device=states.device)
        for members, padded, real in _padded(states, spans):
            logits[members] = self._classify(padded, real)
        return logits

    def _classify(self, states: torch.Tensor, real: torch.Tensor | None = None) -> torch.Tensor:
        """Run the class on `[sequences, tokens, hidden]`, of which `real` says what is no padding."""
        mask = torch.ones(states.shape[:2], dtype=torch.int64, device=states.device) if real is None else real.long()
        self._given.states = states
        try:
            # The ids only say where padding is: 0 is the config's padding, and 1 its end of a text.
            logits: torch.Tensor = self._model(input_ids=mask, attention_mask=mask).logits
        finally:
            self._given.states = torch.empty(0)
        return logits[:, -1] if logits.ndim == 3 else logits


@dataclass
class _Outputs(BaseModelOutputWithPoolingAndCrossAttentions):  # type: ignore[misc]
    """What base models return, with the fields that classes with a decoder hand on unread."""

    decoder_hidden_states: None = None
    decoder_attentions: None = None
    encoder_last_hidden_state: None = None
    encoder_hidden_states: None = None
    encoder_attentions: None = None


class _GivenStates(nn.Module):
    """Stands in for a base model: returns the states it was given, and what the base model's pooler makes of them."""

    def __init__(self, base: Any) -> None:
        super().__init__()
        self.pooler: nn.Module | None = getattr(base, "pooler", None)
        self.pooler_activation: nn.Module | None = getattr(base, "pooler_activation", None)
        self.states = torch.empty(0)

    def forward(self, *ignored: Any, **others: Any) -> _Outputs:
        pooled = None
        if self.pooler is not None:
            # ALBERT's pooler is a bare linear layer with its activation beside it.
            bare = isinstance(self.pooler, nn.Linear)
            pooled = self.pooler(self.states[:, 0] if bare else self.states)
            pooled = pooled if self.pooler_activation is None else self.pooler_activation(pooled)
        return _Outputs(last_hidden_state=self.states, pooler_output=pooled)


def _padded(states: torch.Tensor, spans: Spans) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Pad sequences of similar length together.

    Gives for each batch which sequences it holds, their states `[sequences, longest, hidden]`, and what is no padding.
    """
    lengths: list[int] = spans.lengths.tolist()
    for group in group_by_length(lengths):
        members = torch.tensor(group, device=states.device)
        places = torch.arange(max(lengths[number] for number in group), device=states.device)
        real = places < spans.lengths[members][:, None]
        rows = (spans.firsts[members][:, None] + places).clamp(max=len(states) - 1)
        yield members, states[rows].float() * real[..., None], real
