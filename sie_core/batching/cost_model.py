"""Learns how long a batch of some cost runs."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final

# Times the predicted seconds, where an answer must be there by a deadline: runs vary by some percent, and their outputs
# are finished and encoded afterwards.
MARGIN: Final = 1.1
# Factor on a sample's weight for each later one. About twenty samples count, so that a change of speed is noticed.
_MEMORY = 0.95
# Of so many batches of about one cost the fastest counts towards the fixed time, and none of more batches ago.
_LATELY = 8
_LONG_AGO = 128
# Prior: the share of a batch's time that grows with its cost; the rest is overhead.
_PRIOR_SLOPE = 0.5
# Weight of the prior, in samples whose spread equals the mean cost.
_PRIOR_WEIGHT = 0.1


@dataclass(slots=True)
class CostModel:
    """Seconds as overhead and a price for each unit of cost: ridge regression with exponentially fading weights.

    Batches of equal cost tell nothing about the price. If all their time counted as price, a slow single request would
    forbid every larger batch, and larger ones would never be measured. So the prior is half price and half overhead,
    and measurements of different costs override it. Neither part is ever negative.
    """

    _weight: float = 0.0
    _cost: float = 0.0
    _seconds: float = 0.0
    _cost_cost: float = 0.0
    _cost_seconds: float = 0.0
    _overhead: float = 0.0
    _price: float = 0.0

    def record(self, cost: int, seconds: float) -> None:
        """Record that a batch of `cost` units ran for `seconds`."""
        self._weight = self._weight * _MEMORY + 1.0
        self._cost = self._cost * _MEMORY + cost
        self._seconds = self._seconds * _MEMORY + seconds
        self._cost_cost = self._cost_cost * _MEMORY + float(cost) * cost
        self._cost_seconds = self._cost_seconds * _MEMORY + cost * seconds
        mean, mean_seconds = self._cost / self._weight, self._seconds / self._weight
        variance = max(0.0, self._cost_cost / self._weight - mean * mean)
        covariance = self._cost_seconds / self._weight - mean * mean_seconds
        most = mean_seconds / mean
        prior = _PRIOR_WEIGHT / self._weight * mean * mean
        price = (covariance + prior * _PRIOR_SLOPE * most) / (variance + prior)
        self._price = min(most, max(0.0, price))
        self._overhead = mean_seconds - self._price * mean

    def predict(self, cost: float) -> float | None:
        """Predict the seconds of a batch of `cost` units; None before the first measurement."""
        return self._overhead + self._price * cost if self._weight else None

    @property
    def overhead(self) -> float:
        """Return the seconds of a batch that do not grow with its cost."""
        return self._overhead

    def within(self, seconds: float) -> float:
        """Return the cost of a batch that takes `seconds`; infinity where cost takes no time that was measured."""
        return (seconds - self._overhead) / self._price if self._price else inf


class FixedTime:
    """The seconds of a batch that do not grow with its cost, from the smallest and the largest batches of late.

    The overhead of `CostModel` is a part of predictions and fades with it: under a flood, whose batches are equally
    large, it becomes half of their time.
    """

    def __init__(self) -> None:
        self._batches = 0
        # By powers of two of the cost: the number of the batch, its cost and its seconds.
        self._measured: defaultdict[int, deque[tuple[int, int, float]]] = defaultdict(partial(deque, maxlen=_LATELY))

    def record(self, cost: int, seconds: float) -> None:
        """Record that a batch of `cost` units ran for `seconds`."""
        self._batches += 1
        self._measured[cost.bit_length()].append((self._batches, cost, seconds))

    def seconds(self) -> float | None:
        """Return them; None where all batches of late cost about the same."""
        (small, small_s), (large, large_s) = self._extremes()
        if large < 2 * small or not small:
            return None
        return min(small_s, max(0.0, (small_s * large - large_s * small) / (large - small)))

    def smallest(self) -> int:
        """Return the cost of the smallest batch of late; 0 before the first."""
        return self._extremes()[0][0]

    def _extremes(self) -> tuple[tuple[int, float], tuple[int, float]]:
        for size in [size for size, batches in self._measured.items() if batches[-1][0] + _LONG_AGO < self._batches]:
            del self._measured[size]
        if not self._measured:
            return (0, 0.0), (0, 0.0)
        sizes = (self._measured[size] for size in (min(self._measured), max(self._measured)))
        smallest, largest = (min(batches, key=lambda each: each[2])[1:] for batches in sizes)
        return smallest, largest
