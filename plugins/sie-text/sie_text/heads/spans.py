"""The rows of the flat states of a packed batch that each sequence pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]
Upload = Callable[[Sequence[Index]], Sequence[Any]]
"""Copies arrays to where the states are."""


@dataclass(frozen=True, slots=True)
class Spans:
    """The rows of the flat states that each sequence pools: `rows[offsets[i]:offsets[i + 1]]`.

    All but the first are int64 arrays, or tensors on the device of the states.
    """

    sizes: tuple[int, ...]
    """`lengths`, on the host, so that reading them is no wait for the device."""
    rows: Any
    """`[tokens]`: numbers of flat states."""
    places: Any
    """`[tokens]`: the place of each in its sequence, from 0, excluded tokens counted."""
    _: KW_ONLY
    offsets: Any
    """`[sequences]`: start of each sequence in `rows`."""
    lengths: Any
    """`[sequences]`: number of its rows; 0 if its tokens are all excluded."""
    firsts: Any
    """`[sequences]`: the flat state of its first token that is not excluded, or of its first one."""
    lasts: Any
    """`[sequences]`: the flat state of its last token."""
    weights: Any
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
    rows, places, *others = upload(parts)
    of_sequences = dict(zip(("offsets", "lengths", "firsts", "lasts", "weights"), others, strict=True))
    return Spans(tuple(lengths.tolist()), rows, places, **of_sequences)


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
