"""Does a series of measurements grow? Theil–Sen's slope, Sen's interval for it, and a judgement. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Z = 1.96
"""Of a two-sided interval of 95 %."""
LEAST_POINTS = 6

Series = NDArray[np.float64]
Span = tuple[float, float]
"""From a second until before another."""


class TooFewPointsError(ValueError):
    """There is too little to judge."""


@dataclass(frozen=True, slots=True)
class Trend:
    """How a series moves: units a minute, over so many minutes."""

    slope: float
    low: float
    high: float
    """The interval that holds the true slope with 95 %, were the points independent."""
    minutes: float
    points: int

    @property
    def growth(self) -> float:
        """What the slope makes of the whole span, in units."""
        return self.slope * self.minutes

    @property
    def noise(self) -> float:
        """Half the interval, over the whole span, in units."""
        return (self.high - self.low) / 2 * self.minutes

    def grows(self, allowance: float) -> bool:
        """Whether even the lower end of the interval exceeds `allowance` units over the span."""
        return self.low * self.minutes > allowance

    def verdict(self, allowance: float) -> str:
        """Say it in words."""
        if self.grows(allowance):
            return "GROWS"
        if self.low > 0:
            return "settles, below what is allowed"
        return "falls" if self.high < 0 else "zero within noise"


def trend(seconds: Sequence[float] | Series, values: Sequence[float] | Series) -> Trend:
    """Estimate the slope: the median of the slopes between all pairs of points (Theil 1950, Sen 1968).

    Up to 29 % of the points may lie anywhere. The interval is Sen's: the pairwise slopes whose ranks lie as far from
    the middle as Kendall's statistic does by chance.

    Args:
        seconds: When each value was measured; increasing.
        values: The values, in any unit.

    Raises:
        TooFewPointsError: There are fewer than `LEAST_POINTS`.
    """
    count = len(values)
    if count < LEAST_POINTS:
        raise TooFewPointsError(f"{count} points are too few to judge; {LEAST_POINTS} are needed: measure for longer.")
    minutes, heights = np.asarray(seconds, np.float64) / 60, np.asarray(values, np.float64)
    first, second = np.triu_indices(count, 1)
    slopes = np.sort((heights[second] - heights[first]) / (minutes[second] - minutes[first]))
    spread = Z * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low = max(0, math.floor((len(slopes) - spread) / 2))
    high = min(len(slopes) - 1, math.ceil((len(slopes) + spread) / 2))
    span = float(minutes[-1] - minutes[0])
    return Trend(float(np.median(slopes)), float(slopes[low]), float(slopes[high]), span, count)


def floors(seconds: Sequence[float], values: Sequence[float], spans: Iterable[Span]) -> tuple[Series, Series]:
    """Keep the least value of each span and when it was seen; spans without a value are passed over.

    What requests hold for a while comes and goes; what is never given back lifts the least value too.
    """
    times, heights = np.asarray(seconds, np.float64), np.asarray(values, np.float64)
    places = [np.flatnonzero((begin <= times) & (times < end)) for begin, end in spans]
    least = [int(place[np.argmin(heights[place])]) for place in places if len(place)]
    return times[least], heights[least]


def windows(begin: float, end: float, count: int) -> list[Span]:
    """Cut a time into spans of equal length."""
    edges = np.linspace(begin, end, count + 1).tolist()
    return list(pairwise(edges))
