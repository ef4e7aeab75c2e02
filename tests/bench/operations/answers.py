"""Answers as arrays in a file, and how far those of two sides are apart.

`score`: `scores` `[units]`. `sparse`: `weights` `[units, vocabulary]`. `multivector`: `vectors` `[tokens, dims]` and
`lengths` `[units]`. `extract`: `spans` `[entities, 4]` (unit, start, end, label) and `scores` `[entities]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Answers = Mapping[str, NDArray[Any]]
FAR = {"float32": 0.01}
FAR_IN_HALF = 0.3
"""Numbers further apart than this share of the reference's own deviation are wrong, by the precision of ours."""
PROBABILITY_IN_HALF = 0.01
"""So far apart may probabilities of an entity be in half precision, however little those above the threshold spread."""
FEW = {"float32": 0.05}
FEW_IN_HALF = 0.4
"""The share of entities that one side alone may find, by the precision of ours: those on the threshold. Random weights
score many spans nearly alike, and half precision then finds others of them."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """How far two sides' answers are apart."""

    compared: int
    """Numbers, or entities that either side found."""
    largest: float
    """Difference of two numbers that belong together."""
    scale: float
    """Standard deviation of the reference's numbers."""
    unequal: int = 0
    """Entities that one side alone found."""
    of_entities: bool = False
    """Whether the numbers are probabilities of entities."""

    def is_wrong(self, precision: str) -> bool:
        """Tell whether one of the two must be wrong, where ours were computed in `precision`."""
        far = FAR.get(precision, FAR_IN_HALF) * self.scale
        if self.of_entities and precision not in FAR:
            far = max(far, PROBABILITY_IN_HALF)
        few = FEW.get(precision, FEW_IN_HALF)
        return not self.largest <= far or self.unequal > few * self.compared


def save(file: Path, answers: Answers) -> None:
    """Write answers."""
    np.savez(file, allow_pickle=False, **answers)


def read(file: Path) -> Answers:
    """Read answers."""
    with np.load(file) as found:
        return dict(found)


def deviation(ours: Answers, theirs: Answers) -> Deviation:
    """Compare two sides' answers to the same questions.

    Raises:
        ValueError: They do not even have the same shapes.
    """
    if "spans" in theirs:
        return _of_entities(ours, theirs)
    for name, expected in theirs.items():
        if ours[name].shape != expected.shape or (name == "lengths" and (ours[name] != expected).any()):
            raise ValueError(f"{name}: one side gave {ours[name].shape}, the other {expected.shape}")
    name = next(name for name in theirs if name != "lengths")
    found, expected = ours[name].astype(np.float64), theirs[name].astype(np.float64)
    told = expected[expected != 0]
    return Deviation(told.size, float(np.abs(found - expected).max(initial=0)), float(told.std()))


def _of_entities(ours: Answers, theirs: Answers) -> Deviation:
    found, expected = (_by_place(each) for each in (ours, theirs))
    both = found.keys() & expected.keys()
    largest = max((abs(found[place] - expected[place]) for place in both), default=0.0)
    scale = float(np.std(list(expected.values()))) if expected else 0.0
    unequal = len(found.keys() ^ expected.keys())
    return Deviation(len(found.keys() | expected.keys()), largest, scale, unequal, of_entities=True)


def _by_place(answers: Answers) -> dict[tuple[int, ...], float]:
    return {tuple(span): float(score) for span, score in zip(answers["spans"].tolist(), answers["scores"], strict=True)}
