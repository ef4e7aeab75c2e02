"""Computes the logits of a sequence on the device."""

from __future__ import annotations

import torch
from sie_text import heads as host
from sie_text.heads import Spans

from sie_pytorch.heads.pooling import pool


class PooledClassifier(host.PooledClassifier):
    """A pooling and the layers after it; the last one gives the logits."""

    def __call__(self, states: torch.Tensor, spans: Spans) -> torch.Tensor:
        """Pool, then apply the layers in their order."""
        logits: torch.Tensor = self._steps(pool(states, spans, self._modes))
        return logits
