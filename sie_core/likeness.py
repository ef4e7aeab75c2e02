"""Finds the names that a mistyped one comes nearest to, for the questions of error messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher
from heapq import nlargest
from typing import Final

_COMPARED: Final = 32
"""Names that are compared closely: those with the largest share of pairs of characters that the mistyped one has."""
_OF_A_PART: Final = 0.9
"""The share that counts of the likeness to a part of a name."""


def likeness(one: str, other: str) -> float:
    """Tell how like two texts are, from 0 to 1; a text that stands within a longer one counts for nearly alike."""
    match = SequenceMatcher(None, one, other, autojunk=False)
    return max(match.ratio(), _OF_A_PART * match.find_longest_match().size / max(1, min(len(one), len(other))))


def closest(value: str, names: Iterable[str], least: float = 0.6) -> list[tuple[float, str]]:
    """List the names at least so like `value`, whatever the case, with how like they are; the most similar first."""
    wanted = value.lower()
    pairs = {wanted[place : place + 2] for place in range(len(wanted) - 1)}
    candidates = nlargest(_COMPARED, names, lambda name: sum(map(name.lower().__contains__, pairs)) / (1 + len(name)))
    found = sorted(((likeness(wanted, name.lower()), name) for name in candidates), key=lambda each: -each[0])
    return [each for each in found if each[0] >= least]
