"""One vector a text: a pooling of its states and the layers after it, on the device, in float32."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from sie_text import heads as host
from sie_text.heads import DenseChoice, Spans

from sie_pytorch.heads.pooling import pool


class DenseHead(host.DenseHead):
    """Pools, then applies the layers in their order."""

    def compute(self, states: torch.Tensor, layout: Spans, choice: DenseChoice) -> Sequence[torch.Tensor]:
        """Turn flat states `[total_tokens, hidden]` into float32 embeddings `[sequences, dims]`."""
        return (self._steps(pool(states, layout, choice.modes), choice.normalize),)
