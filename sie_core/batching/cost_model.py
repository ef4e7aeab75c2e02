"""Learns how long a batch of some cost runs."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

# Times the predicted seconds, where an answer must be there by a deadline: runs vary by some percent, and their outputs
# are finished and encoded afterwards.
MARGIN: Final = 1.1
# Factor on a sample's weight for each later one. About twenty samples count, so that a change of speed is noticed.
_MEMORY = 0.95
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
