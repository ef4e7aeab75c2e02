"""Pools the flat states of a packed batch to one vector per sequence.

The definitions follow `Pooling` of sentence-transformers 6; sums are in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from sie_text.heads import Spans
from sie_text.recipe import PoolingMode


def pool(states: torch.Tensor, spans: Spans, modes: tuple[PoolingMode, ...]) -> torch.Tensor:
    """Pool flat states `[total_tokens, hidden]` to float32 `[sequences, len(modes) * hidden]`.

    A sequence whose tokens are all excluded gives its first state to `cls` and zeros to every other mode.
    """
    pooled = [POOLERS[mode](states, spans) for mode in modes]
    return pooled[0] if len(pooled) == 1 else torch.cat(pooled, dim=1)


def _bags(states: torch.Tensor, spans: Spans, how: str, weights: torch.Tensor | None = None) -> torch.Tensor:
    """Reduce the rows of each sequence; one without rows gives zeros."""
    return F.embedding_bag(spans.rows, states.float(), spans.offsets, mode=how, per_sample_weights=weights)


def _cls(states: torch.Tensor, spans: Spans) -> torch.Tensor:
    firsts: torch.Tensor = states[spans.firsts].float()
    return firsts


def _last(states: torch.Tensor, spans: Spans) -> torch.Tensor:
    lasts: torch.Tensor = states[spans.lasts].float() * (spans.lengths > 0)[:, None]
    return lasts


def _max(states: torch.Tensor, spans: Spans) -> torch.Tensor:
    # The maximum of an embedding bag ignores NaN; an added sum does not.
    return _bags(states, spans, "max") + 0.0 * _bags(states, spans, "sum")


def _mean(states: torch.Tensor, spans: Spans) -> torch.Tensor:
    return _bags(states, spans, "mean")


def _mean_sqrt_len(states: torch.Tensor, spans: Spans) -> torch.Tensor:
    roots: torch.Tensor = spans.lengths.clamp(min=1).sqrt()[:, None]
    return _bags(states, spans, "sum") / roots


def _weighted_mean(states: torch.Tensor, spans: Spans) -> torch.Tensor:
    """Weigh each token by its place, the first with 1 (SGPT, arXiv 2202.08904)."""
    weights = (spans.places + 1).float()
    total: torch.Tensor = spans.weights[:, None]
    return _bags(states, spans, "sum", weights) / total


POOLERS: Mapping[PoolingMode, Callable[[torch.Tensor, Spans], torch.Tensor]] = {
    "cls": _cls,
    "lasttoken": _last,
    "max": _max,
    "mean": _mean,
    "mean_sqrt_len_tokens": _mean_sqrt_len,
    "weightedmean": _weighted_mean,
}
