"""Cuts the tokens of a long text into windows that overlap, and says whose answer counts for each token.

A token belongs to the window in which it is farthest from an edge that cuts the text: the windows of a text part at the
middle of what they share.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

OVERLAP = 4
"""Two windows share at least one of so many parts of a window, so a token sees half of a part on either side."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Tokens `first` to `last` of a text; the window owns `own_first` to `own_last`. Ends are exclusive."""

    first: int
    last: int
    own_first: int
    own_last: int


def cut_windows(tokens: int, room: int | None) -> list[Bounds]:
    """Cut `tokens` into windows of `room` tokens, evenly spread; one window if all fit, or if there is no limit."""
    if room is None or tokens <= room:
        return [Bounds(0, tokens, 0, tokens)]
    overlap = room // OVERLAP
    count = -(-(tokens - overlap) // (room - overlap))
    firsts = [place * (tokens - room) // (count - 1) for place in range(count)]
    # Of an odd number of shared tokens, the one in the middle is as far from either edge: it is the earlier window's.
    middles = [(after + before + room + 1) // 2 for before, after in pairwise(firsts)]
    owned = zip([0, *middles], [*middles, tokens], strict=True)
    return [Bounds(first, first + room, *own) for first, own in zip(firsts, owned, strict=True)]
