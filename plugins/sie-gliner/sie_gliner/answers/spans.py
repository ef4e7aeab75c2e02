"""Chooses spans from the probabilities of one row, as gliner's decoders do: above a threshold, best first, no overlap.

A client may ask for a threshold of 0 and for many labels. Spans are chosen before labels, so there are never more than
twice as many as words. Work per candidate is done by NumPy, which releases the interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Probabilities = NDArray[np.float32]
Numbers = NDArray[np.int64]

NONE = np.float32(-1)
"""The score of a class that a place is no candidate for."""


@dataclass(frozen=True, slots=True)
class Span:
    """Words `first` to `last`, both inclusive, of class `kind`."""

    first: int
    last: int
    kind: int
    score: float


@dataclass(frozen=True, slots=True)
class Spans:
    """Spans as arrays of equal length, by first word."""

    first: Numbers
    last: Numbers
    kind: Numbers
    score: Probabilities

    def __len__(self) -> int:
        return len(self.first)

    def __iter__(self) -> Iterator[Span]:
        fields = (self.first, self.last, self.kind, self.score)
        return (Span(*each) for each in zip(*(field.tolist() for field in fields), strict=True))


@dataclass(frozen=True, slots=True)
class Candidates:
    """Places that are above the threshold for a class at least; of equal scores, those to be tried first come first."""

    first: Numbers
    last: Numbers
    best: Probabilities
    """The score of the likeliest class."""
    scores: Callable[[Numbers], Probabilities]
    """Maps indices of places to their scores (places, classes); `NONE` if a place is no candidate."""


def from_grid(grid: Probabilities, threshold: float) -> Candidates:
    """Read probabilities of shape (words, widths, classes): span-level models."""
    best = grid.max(axis=2)
    first, width = np.nonzero(best > threshold)
    whole = first + width < len(grid)
    first, width = first[whole], width[whole]

    def scores(places: Numbers) -> Probabilities:
        return _above(grid[first[places], width[places]], threshold)

    return Candidates(first, first + width, best[first, width], scores)


def from_listed(ends: Numbers, listed: Probabilities, threshold: float) -> Candidates:
    """Read probabilities of shape (spans, classes) of spans whose first and last words are `ends` (spans, 2)."""
    best = listed.max(axis=1)
    (span,) = np.nonzero(best > threshold)
    return Candidates(ends[span, 0], ends[span, 1], best[span], lambda places: _above(listed[span[places]], threshold))


def from_words(words: Probabilities, threshold: float) -> Candidates:
    """Read probabilities of shape (words, classes, 3), of a word to begin, to end and to be inside a span."""
    count, classes, _ = words.shape
    best, kinds = np.full((count, count), NONE), np.zeros((count, count), np.int64)
    for kind in range(classes):
        found = _of_class(words[:, kind], threshold)
        kinds[found > best] = kind
        best = np.maximum(best, found)
    first, last = np.nonzero(best >= 0)
    order = np.lexsort((last, kinds[first, last], first))
    first, last = first[order], last[order]

    def scores(places: Numbers) -> Probabilities:
        chosen = first[places], last[places]
        return np.stack([_of_class(words[:, kind], threshold)[chosen] for kind in range(classes)], axis=1)

    return Candidates(first, last, best[first, last], scores)


def _of_class(words: Probabilities, threshold: float) -> Probabilities:
    """Score every first word (rows) with every last one (columns): the least of what makes it a span."""
    begin, end, inside = words.T
    found = np.full((len(words), len(words)), NONE)
    (first,) = np.nonzero(begin > threshold)
    reached = np.arange(len(words)) >= first[:, None]
    least = np.minimum.accumulate(np.where(reached, inside, np.float32(np.inf)), axis=1)
    is_span = reached & (least >= threshold) & (end > threshold)
    found[first] = np.where(is_span, np.minimum(np.minimum(least, begin[first, None]), end), NONE)
    return found


def _above(scores: Probabilities, threshold: float) -> Probabilities:
    return np.where(scores > threshold, scores, NONE)


def choose(candidates: Candidates, *, flat: bool, multi_label: bool) -> Spans:
    """Take the best spans that do not conflict; those of equal score in the given order.

    Two spans conflict if they share a word (`flat`), or share words and neither contains the other (not `flat`). Two of
    the same words do unless `multi_label`.
    """
    first, last = candidates.first, candidates.last
    places = _apart(first, last, np.argsort(-candidates.best, kind="stable"), flat)
    if multi_label:
        place = first * (int(last.max(initial=0)) + 1) + last
        places = np.flatnonzero(np.isin(place, place[places]))
    scores = candidates.scores(places)
    if multi_label:
        at, kind = np.nonzero(scores >= 0)
    else:
        at, kind = np.arange(len(places)), scores.argmax(axis=1)
    first, last, score = first[places[at]], last[places[at]], scores[at, kind]
    order = np.lexsort((kind, last, -score, first))
    return Spans(first[order], last[order], kind[order], score[order])


def _apart(first: Numbers, last: Numbers, left: Numbers, flat: bool) -> Numbers:
    """Take the first remaining span and drop the spans that conflict with it, until none remains."""
    taken = []
    while len(left):
        begin, end = first[left[0]], last[left[0]]
        taken.append(left[0])
        left = left[1:]
        firsts, lasts = first[left], last[left]
        free = (firsts > end) | (lasts < begin)
        if not flat:
            holds, held = (firsts <= begin) & (lasts >= end), (firsts >= begin) & (lasts <= end)
            free |= holds ^ held
        left = left[free]
    return np.array(taken, dtype=np.int64)
