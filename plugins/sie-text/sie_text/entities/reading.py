"""Reads the entities of a text off the labels of its tokens."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import Entity
from sie_text.entities.choice import WORDWISE, EntityChoice
from sie_text.entities.marks import Marks
from sie_text.entities.places import PlacedTokens, Places
from sie_text.entities.tags import TagSet


class _Words(NamedTuple):
    """Words, or tokens that each stand for themselves; arrays of one entry a word."""

    labels: NDArray[np.int32]
    scores: NDArray[np.float32]
    starts: Places
    ends: Places


def read_entities(tokens: PlacedTokens, marks: Marks, tags: TagSet, choice: EntityChoice) -> tuple[Entity, ...]:
    """Read the entities of a whole text, in its order.

    An entity's score is the mean of its words', and a word's that of its label. If the score of any token is NaN, so is
    that of an entity, which the check of outputs finds: a token that was passed over would look like an answer.
    """
    if not len(tokens.starts):
        return ()
    if math.isnan(float(marks.scores.sum())):
        return (Entity("", tags.labels[0], math.nan, start=0, end=0),)
    words = _words(tokens, marks, choice.strategy)
    kinds = tags.kind_of[words.labels]
    firsts = _firsts(words, kinds, tags, choice)
    counts = np.diff(firsts, append=len(kinds))
    scores = np.add.reduceat(words.scores.astype(np.float64), firsts) / counts
    kept = choice.wanted[kinds[firsts]] & (scores > choice.threshold)
    starts, ends = words.starts[firsts], words.ends[firsts + counts - 1]
    kept &= starts < ends  # some tokenizers have tokens that stand for nothing of the text
    names = tags.labels if choice.strategy == "none" else tags.kinds
    numbers = (words.labels if choice.strategy == "none" else kinds)[firsts]
    columns = (each[kept].tolist() for each in (numbers, scores, starts, ends))
    return tuple(
        Entity(tokens.text[start:end], names[number], score, start=start, end=end)
        for number, score, start, end in zip(*columns, strict=True)
    )


def _firsts(words: _Words, kinds: NDArray[np.int32], tags: TagSet, choice: EntityChoice) -> NDArray[np.int64]:
    """Find the first word of each run of words of one kind."""
    new = np.ones(len(kinds), dtype=bool)
    if choice.strategy != "none":
        new[1:] = (kinds[1:] != kinds[:-1]) | tags.begins[words.labels[1:]] | tags.ends[words.labels[:-1]]
    return np.flatnonzero(new)


def _words(tokens: PlacedTokens, marks: Marks, strategy: str) -> _Words:
    """Give each word one label, as the strategy says."""
    if strategy not in WORDWISE:
        return _Words(marks.labels, marks.scores, tokens.starts, tokens.ends)
    assert tokens.continues is not None
    new = ~tokens.continues
    new[0] = True
    firsts = np.flatnonzero(new)
    counts = np.diff(firsts, append=len(new))
    labels, scores = _labelled(marks, strategy, firsts, counts)
    return _Words(labels, scores, tokens.starts[firsts], tokens.ends[firsts + counts - 1])


def _labelled(
    marks: Marks, strategy: str, firsts: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    if strategy == "average":
        assert marks.probabilities is not None
        means = np.add.reduceat(marks.probabilities, firsts, axis=0) / counts[:, None].astype(np.float32)
        return means.argmax(axis=1).astype(np.int32), means.max(axis=1)
    chosen = firsts if strategy == "first" else _surest(marks.scores, firsts, counts)
    return marks.labels[chosen], marks.scores[chosen]


def _surest(scores: NDArray[np.float32], firsts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Find the token of the highest score in each word; of equal ones the first."""
    highest = np.maximum.reduceat(scores, firsts).repeat(counts)
    places = np.where(scores == highest, np.arange(len(scores)), len(scores))
    found: NDArray[np.int64] = np.minimum.reduceat(places, firsts)
    return found
