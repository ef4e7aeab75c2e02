"""Chooses spans from the probabilities of one row, as gliner's decoders do: above a threshold, best first, no overlap.

Its cost grows with the spans above the threshold alone, and no pair of them is compared: a client may ask for a
threshold of 0. It knows arrays of words and classes, no text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Probabilities = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Span:
    """Words `first` to `last`, both inclusive, of class `kind`."""

    first: int
    last: int
    kind: int
    score: float


def from_grid(grid: Probabilities, threshold: float) -> list[Span]:
    """Read probabilities of shape (words, widths, classes): span-level models."""
    first, width, kind = np.nonzero(grid > threshold)
    whole = first + width < len(grid)
    first, width, kind = first[whole], width[whole], kind[whole]
    return _spans(first, first + width, kind, grid[first, width, kind])


def from_listed(ends: NDArray[np.int64], listed: Probabilities, threshold: float) -> list[Span]:
    """Read probabilities of shape (spans, classes) of spans whose first and last words are `ends` (spans, 2)."""
    span, kind = np.nonzero(listed > threshold)
    return _spans(ends[span, 0], ends[span, 1], kind, listed[span, kind])


def from_words(words: Probabilities, threshold: float) -> list[Span]:
    """Read probabilities of shape (words, classes, 3), of a word to begin, to end and to be inside a span."""
    found = [span for kind in range(words.shape[1]) for span in _of_class(words[:, kind], kind, threshold)]
    return sorted(found, key=lambda span: (span.first, span.kind, span.last))


def _of_class(words: Probabilities, kind: int, threshold: float) -> Iterable[Span]:
    begin, end, inside = words.T
    unlikely = np.flatnonzero(inside < threshold)
    for first in np.flatnonzero(begin > threshold):
        after = np.searchsorted(unlikely, first)
        stop = int(unlikely[after]) if after < len(unlikely) else len(words)
        lasts = first + np.flatnonzero(end[first:stop] > threshold)
        if len(lasts):
            least = np.minimum(np.minimum.accumulate(inside[first:stop]), begin[first])
            scores = np.minimum(least[lasts - first], end[lasts])
            yield from _spans(np.full_like(lasts, first), lasts, np.full_like(lasts, kind), scores)


def _spans(
    first: NDArray[np.int64], last: NDArray[np.int64], kind: NDArray[np.int64], score: Probabilities
) -> list[Span]:
    return [Span(*each) for each in zip(first.tolist(), last.tolist(), kind.tolist(), score.tolist(), strict=True)]


def choose(spans: Sequence[Span], *, flat: bool, multi_label: bool) -> list[Span]:
    """Take the best spans that do not get into each other's way; those of equal score in the order given.

    Two spans do where they share a word (`flat`), or share words and neither holds the other (not `flat`). Two of the
    same words do unless `multi_label`. They come in the order of their first words.
    """
    taken = _Flat(multi_label) if flat else _Nested(multi_label)
    best = sorted(spans, key=lambda span: -span.score)
    return sorted((span for span in best if taken.take(span)), key=lambda span: span.first)


class _Flat:
    """Words that belong to a span each."""

    def __init__(self, multi_label: bool) -> None:
        self._multi_label = multi_label
        self._owners: dict[int, tuple[int, int]] = {}

    def take(self, span: Span) -> bool:
        bounds = (span.first, span.last)
        for word in range(span.first, span.last + 1):
            owner = self._owners.get(word)
            if owner is not None and not (self._multi_label and owner == bounds):
                return False
        self._owners.update(dict.fromkeys(range(span.first, span.last + 1), bounds))
        return True


class _Nested:
    """Spans that lie inside each other or apart: the last end for each begin, and the first begin for each end."""

    def __init__(self, multi_label: bool) -> None:
        self._multi_label = multi_label
        self._taken: set[tuple[int, int]] = set()
        self._last: dict[int, int] = {}
        self._first: dict[int, int] = {}

    def take(self, span: Span) -> bool:
        first, last = span.first, span.last
        if (first, last) in self._taken:
            return self._multi_label
        if any(self._last.get(word, last) > last for word in range(first + 1, last + 1)):
            return False
        if any(self._first.get(word, first) < first for word in range(first, last)):
            return False
        self._taken.add((first, last))
        self._last[first] = max(last, self._last.get(first, last))
        self._first[last] = min(first, self._first.get(last, first))
        return True
