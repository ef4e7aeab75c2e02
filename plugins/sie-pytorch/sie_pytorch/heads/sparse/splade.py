"""SPLADE on the device: a weight for every entry of the vocabulary, pooled over the logits of a text's tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from sie_text import heads as host


class SpladeHead(host.SpladeHead):
    """Runs the vocabulary's layer over a few tokens at a time, and keeps only the pooled result of each text."""

    def _join(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """Join tensors along their first axis."""
        return torch.cat(tuple(parts))

    def _zeros(self, texts: int, states: torch.Tensor) -> torch.Tensor:
        """Make float32 zeros `[texts, vocabulary]` where the states are."""
        return torch.zeros((texts, self.dims), dtype=torch.float32, device=states.device)

    def _take(self, pooled: torch.Tensor, logits: torch.Tensor) -> None:
        """Add some tokens of a text to its pooled result, `[vocabulary]`."""
        if self._settings.pooling == "max":
            torch.maximum(pooled, logits.amax(0).float(), out=pooled)
        else:
            pooled += self._weigh(logits.float().relu_()).sum(0)

    def _weigh(self, logits: torch.Tensor) -> torch.Tensor:
        """Turn logits from 0 on into weights, in place."""
        weights = logits.log1p_()
        return weights.log1p_() if self._settings.activation == "log1p_relu" else weights

    def _entries(self, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Find the entries of `[texts, vocabulary]` that are not zero, row by row."""
        rows, indices = weights.nonzero(as_tuple=True)
        counts = torch.bincount(rows, minlength=len(weights))
        return counts, indices.int(), weights[rows, indices]
