"""Pools the flat states of a packed batch to one vector per sequence.

The definitions follow `Pooling` of sentence-transformers 6; sums are in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sie_text.recipe import PoolingMode

Index = NDArray[np.int64]
Upload = Callable[[Sequence[Index]], Sequence[torch.Tensor]]
"""Copies arrays to the device of the states."""


@dataclass(frozen=True, slots=True)
class Spans:
    """The rows of the flat states that each sequence pools: `rows[offsets[i]:offsets[i + 1]]`.

    All but the first are int64 tensors on the device of the states.
    """

    sizes: tuple[int, ...]
    """`lengths`, on the host, so that reading them is no wait for the device."""
    rows: torch.Tensor
    """`[tokens]`: numbers of flat states."""
    places: torch.Tensor
    """`[tokens]`: the place of each in its sequence, from 0, excluded tokens counted."""
    offsets: torch.Tensor
    """`[sequences]`: start of each sequence in `rows`."""
    lengths: torch.Tensor
    """`[sequences]`: number of its rows; 0 if its tokens are all excluded."""
    firsts: torch.Tensor
    """`[sequences]`: the flat state of its first token that is not excluded, or of its first one."""
    lasts: torch.Tensor
    """`[sequences]`: the flat state of its last token."""
    weights: torch.Tensor
    """`[sequences]`: the sum of its rows' weights in a weighted mean; at least 1."""


def find_spans(cu_seqlens: Index, excluded: Index, upload: Upload, lasts: Index | None = None) -> Spans:
    """Lay out the spans of a batch.

    Args:
        cu_seqlens: `[sequences + 1]`: start of each sequence, and the number of all tokens last.
        excluded: `[sequences]`: number of leading tokens that do not count.
        upload: Called once, with all that the device needs.
        lasts: `[sequences]`: the flat place of the last token of each that counts; None for the last of all.
    """
    starts, stops = cu_seqlens[:-1], cu_seqlens[1:]
    tokens = stops - starts
    excluded = np.minimum(excluded, tokens)
    lengths = tokens - excluded
    offsets = np.zeros_like(cu_seqlens)
    lengths.cumsum(out=offsets[1:])
    places = np.arange(offsets[-1]) - (offsets[:-1] - excluded).repeat(lengths)
    rows = places + starts.repeat(lengths)
    firsts = np.where(lengths > 0, starts + excluded, starts)
    weights = np.maximum(1, (tokens * (tokens + 1) - excluded * (excluded + 1)) // 2)
    parts = (rows, places, offsets[:-1], lengths, firsts, stops - 1 if lasts is None else lasts, weights)
    return Spans(tuple(lengths.tolist()), *upload(parts))


def last_others(ids: Index, cu_seqlens: Index, padding: int) -> Index:
    """Return the index of each sequence's last non-padding token (its first if all are padding).

    Classes that classify a decoder's last state read it there, whether padding was added or spelled out by a text.
    """
    lasts = cu_seqlens[1:] - 1
    for number in np.flatnonzero(ids[lasts] == padding):
        start = cu_seqlens[number]
        others = np.flatnonzero(ids[start : cu_seqlens[number + 1]] != padding)
        lasts[number] = start + (others[-1] if len(others) else 0)
    return lasts


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
    return states[spans.firsts].float()


def _last(states: torch.Tensor, spans: Spans) -> torch.Tensor:
    return states[spans.lasts].float() * (spans.lengths > 0)[:, None]


def _max(states: torch.Tensor, spans: Spans) -> torch.Tensor:
    # The maximum of an embedding bag ignores NaN; an added sum does not.
    return _bags(states, spans, "max") + 0.0 * _bags(states, spans, "sum")


def _mean(states: torch.Tensor, spans: Spans) -> torch.Tensor:
    return _bags(states, spans, "mean")


def _mean_sqrt_len(states: torch.Tensor, spans: Spans) -> torch.Tensor:
    return _bags(states, spans, "sum") / spans.lengths.clamp(min=1).sqrt()[:, None]


def _weighted_mean(states: torch.Tensor, spans: Spans) -> torch.Tensor:
    """Weigh each token by its place, the first with 1 (SGPT, arXiv 2202.08904)."""
    weights = (spans.places + 1).float()
    return _bags(states, spans, "sum", weights) / spans.weights[:, None]


POOLERS: Mapping[PoolingMode, Callable[[torch.Tensor, Spans], torch.Tensor]] = {
    "cls": _cls,
    "lasttoken": _last,
    "max": _max,
    "mean": _mean,
    "mean_sqrt_len_tokens": _mean_sqrt_len,
    "weightedmean": _weighted_mean,
}
