"""Cuts the words of a text into windows that overlap, and says which window an entity belongs to.

A window *owns* the words from the middle of its overlap with the window before to the middle of its overlap with the
one after.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Window:
    """Words `first` to `last` of a text; the window owns `own_first` to `own_last`. Ends are exclusive."""

    first: int
    last: int
    own_first: int
    own_last: int


@dataclass(frozen=True, slots=True)
class WindowSize:
    """The size of a window, and the number of words it shares with the next one."""

    words: int
    tokens: int
    overlap: int
    """At least twice the widest entity, unless half a window is less.

    The owner of an entity's first word then sees the whole entity.
    """


def split(counts: NDArray[np.int64], size: WindowSize) -> list[Window]:
    """Cut words of `counts` tokens each, none above `size.tokens`, into windows; one window if all fit.

    Every window but the first extends beyond the one before. Windows of long words overlap by at most half of their
    words, and by fewer if the next word would not fit otherwise.
    """
    bounds = list(_bounds(np.concatenate(([0], np.cumsum(counts))), size))
    middles = [(after + last + 1) // 2 for (_, last), (after, _) in pairwise(bounds)]
    owned = zip([0, *middles], [*middles, len(counts)], strict=True)
    return [Window(*bound, *own) for bound, own in zip(bounds, owned, strict=True)]


def _bounds(sums: NDArray[np.int64], size: WindowSize) -> Iterator[tuple[int, int]]:
    """Return first and last word of each window."""
    words = len(sums) - 1

    def reach(first: int) -> int:
        fits = int(np.searchsorted(sums, sums[first] + size.tokens, side="right")) - 1
        return min(fits, first + size.words, words)

    first, last = 0, reach(0)
    yield first, last
    while last < words:
        first = last - min(size.overlap, (last - first) // 2)
        while reach(first) <= last:
            first += 1
        last = reach(first)
        yield first, last
