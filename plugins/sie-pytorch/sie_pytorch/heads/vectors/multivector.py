"""A vector for every token that counts (ColBERT), on the device, in float32."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from sie_text import heads as host
from sie_text.heads import Kept


class MultivectorHead(host.MultivectorHead):
    """Gathers the states that count, then applies the layers."""

    def compute(self, states: torch.Tensor, layout: Kept, choice: bool | None) -> Sequence[torch.Tensor]:
        """Turn flat states `[total_tokens, hidden]` into float32 vectors `[kept, dims]`."""
        return (self._steps(states[layout.rows].float(), choice),)
