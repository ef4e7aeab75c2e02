"""A transformers class without its base model: its remaining computation, on states computed elsewhere.

The class's own forward pass runs, so whatever pooler, dense layer, late pooling or softcap the class has is there, for
every architecture.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from sie_text.heads import Classifier, Spans

from sie_pytorch.forward import Transfers, group_by_length
from sie_pytorch.heads.own_class.given_states import GivenStates
from sie_pytorch.heads.pooling import pool

Gathering = Literal["cls", "lasttoken", "unpadded", "mean", "tokens"]
"""States of a sequence that a class reads: the first, the last, the last that is not padding, their mean, or each."""
GATHERINGS: tuple[Gathering, ...] = ("cls", "lasttoken", "unpadded", "mean", "tokens")
"""In the order of trial: one state per sequence is cheap, all of them must be padded."""


class ClassHead(Classifier):
    """The part of a class for classification or language modelling after its base model, in float32."""

    def __init__(self, model: Any, gathering: Gathering, labels: int, padding: int | None = None) -> None:
        """Share the modules of `model` but its base model.

        Args:
            model: The model of the class, in evaluation mode.
            gathering: The states it gets of each sequence.
            labels: Number of its logits.
            padding: The padding token of the checkpoint.
        """
        self._given = GivenStates(model.base_model, ("pooler", "pooler_activation"))
        self._model = copy.copy(model)
        self._model._modules = {**model._modules, model.base_model_prefix: self._given}
        self._transfers = Transfers(torch.device("cpu"))
        self.gathering = gathering
        self.labels = labels
        self.padding = padding if gathering == "unpadded" else None
        self.memory_bytes = sum(weight.nbytes for weight in self._model.parameters())

    def to(self, device: torch.device) -> ClassHead:
        """Move it to `device`."""
        self._transfers = Transfers(device)
        self._model.to(device)
        return self

    def __call__(self, states: torch.Tensor, spans: Spans) -> torch.Tensor:
        """Turn flat states `[total_tokens, hidden]` into float32 logits `[sequences, labels]`."""
        if self.gathering != "tokens":
            mode = "lasttoken" if self.gathering == "unpadded" else self.gathering
            return self._classify(pool(states, spans, (mode,))[:, None])
        logits = torch.empty((len(spans.lengths), self.labels), device=states.device)
        for members, padded, real in _padded(states, spans, self._transfers):
            logits[members] = self._classify(padded, real)
        return logits

    def _classify(self, states: torch.Tensor, real: torch.Tensor | None = None) -> torch.Tensor:
        """Run the class on `[sequences, tokens, hidden]`; `real` masks padding."""
        mask = torch.ones(states.shape[:2], dtype=torch.int64, device=states.device) if real is None else real.long()
        # The ids only mark padding: 0 is the config's padding, and 1 its end token.
        with self._given.holding(states):
            logits: torch.Tensor = self._model(input_ids=mask, attention_mask=mask).logits
        return logits[:, -1] if logits.ndim == 3 else logits


def _padded(
    states: torch.Tensor, spans: Spans, transfers: Transfers
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Pad sequences of similar length together, without a wait for the device.

    Yields for each batch the indices of its sequences, their states `[sequences, longest, hidden]`, and the mask of
    real tokens.
    """
    groups = group_by_length(spans.sizes)
    uploaded = transfers.upload([np.array(group) for group in groups])
    for group, members in zip(groups, uploaded, strict=True):
        places = torch.arange(max(spans.sizes[number] for number in group), device=states.device)
        real = places < spans.lengths[members][:, None]
        rows = (spans.firsts[members][:, None] + places).clamp(max=len(states) - 1)
        yield members, states[rows].float() * real[..., None], real
