"""Pools the flat states of a packed batch to one vector per sequence, in NumPy.

The definitions follow `Pooling` of sentence-transformers 6; sums are in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sie_text.heads.spans import Spans
from sie_text.recipe import PoolingMode

Floats = NDArray[np.float32]


def pool(states: NDArray[Any], spans: Spans, modes: tuple[PoolingMode, ...]) -> Floats:
    """Pool flat states `[total_tokens, hidden]` to float32 `[sequences, len(modes) * hidden]`.

    A sequence whose tokens are all excluded gives its first state to `cls` and zeros to every other mode.
    """
    floats = states.astype(np.float32, copy=False)
    pooled = [POOLERS[mode](floats, spans) for mode in modes]
    return pooled[0] if len(pooled) == 1 else np.concatenate(pooled, axis=1)


def _bags(states: Floats, spans: Spans, how: np.ufunc, weights: Floats | None = None) -> Floats:
    """Reduce the rows of each sequence; one without rows gives zeros."""
    pooled = np.zeros((len(spans.lengths), states.shape[1]), dtype=np.float32)
    if len(spans.rows):
        rows = states[spans.rows] if weights is None else states[spans.rows] * weights[:, None]
        filled = spans.lengths > 0
        pooled[filled] = how.reduceat(rows, spans.offsets[filled], axis=0)
    return pooled


def _cls(states: Floats, spans: Spans) -> Floats:
    firsts: Floats = states[spans.firsts]
    return firsts


def _last(states: Floats, spans: Spans) -> Floats:
    lasts: Floats = states[spans.lasts] * (spans.lengths > 0)[:, None].astype(np.float32)
    return lasts


def _max(states: Floats, spans: Spans) -> Floats:
    return _bags(states, spans, np.maximum)


def _mean(states: Floats, spans: Spans) -> Floats:
    return _bags(states, spans, np.add) / _counts(spans)


def _mean_sqrt_len(states: Floats, spans: Spans) -> Floats:
    roots: Floats = np.sqrt(_counts(spans))
    return _bags(states, spans, np.add) / roots


def _weighted_mean(states: Floats, spans: Spans) -> Floats:
    """Weigh each token by its place, the first with 1 (SGPT, arXiv 2202.08904)."""
    weights = (spans.places + 1).astype(np.float32)
    means: Floats = _bags(states, spans, np.add, weights) / spans.weights[:, None].astype(np.float32)
    return means


def _counts(spans: Spans) -> Floats:
    """`[sequences, 1]`: the number of rows of each, at least 1."""
    counts: Floats = np.maximum(spans.lengths, 1)[:, None].astype(np.float32)
    return counts


POOLERS: Mapping[PoolingMode, Callable[[Floats, Spans], Floats]] = {
    "cls": _cls,
    "lasttoken": _last,
    "max": _max,
    "mean": _mean,
    "mean_sqrt_len_tokens": _mean_sqrt_len,
    "weightedmean": _weighted_mean,
}
