"""A weight for every token of a text, by a linear layer on its state (BGE-M3), on the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from sie_text import heads as host
from sie_text.sequences import PackedBatch


class TokenWeightHead(host.TokenWeightHead):
    """Weighs tokens on the device and gathers them on the host."""

    def compute(self, states: torch.Tensor, layout: PackedBatch, choice: None) -> Sequence[torch.Tensor]:
        """Turn flat states `[total_tokens, hidden]` into float32 weights `[total_tokens]`."""
        weights: torch.Tensor = self._layer(states.float())
        return (weights[:, 0].relu(),)
