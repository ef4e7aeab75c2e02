"""Learns how long a batch of some cost runs. It must not know what a unit of cost is, nor what time it is now."""

from __future__ import annotations

from dataclasses import dataclass

_MEMORY = 0.95
"""What a sample's weight becomes with each later one: the last twenty count most, so a slower machine is noticed."""
_PRIOR_SLOPE = 0.5
"""The share of the time that is thought to grow with cost while nothing tells; the rest is thought to be overhead."""
_PRIOR_WEIGHT = 0.1
"""How many samples, at a spread as large as the mean cost itself, that belief is worth."""


@dataclass(slots=True)
class CostModel:
    """Seconds as overhead and a price for each unit of cost: ridge regression with exponentially fading weights.

    Batches that all cost the same tell nothing of the price. Were their time thought to be all price, a slow single
    request would forbid every larger batch, and nobody would ever learn better; so the belief then is half and half,
    and the spread of what is seen overrules it. Neither part is ever negative.
    """

    _weight: float = 0.0
    _cost: float = 0.0
    _seconds: float = 0.0
    _cost_cost: float = 0.0
    _cost_seconds: float = 0.0

    def record(self, cost: int, seconds: float) -> None:
        """Learn that a batch of `cost` units ran for `seconds`."""
        self._weight = self._weight * _MEMORY + 1.0
        self._cost = self._cost * _MEMORY + cost
        self._seconds = self._seconds * _MEMORY + seconds
        self._cost_cost = self._cost_cost * _MEMORY + float(cost) * cost
        self._cost_seconds = self._cost_seconds * _MEMORY + cost * seconds

    def predict(self, cost: int) -> float | None:
        """Predict the seconds of a batch of `cost` units; None before the first measurement."""
        if self._weight == 0.0:
            return None
        mean, mean_seconds = self._cost / self._weight, self._seconds / self._weight
        variance = max(0.0, self._cost_cost / self._weight - mean * mean)
        covariance = self._cost_seconds / self._weight - mean * mean_seconds
        most = mean_seconds / mean
        prior = _PRIOR_WEIGHT / self._weight * mean * mean
        price = (covariance + prior * _PRIOR_SLOPE * most) / (variance + prior)
        price = min(most, max(0.0, price))
        return mean_seconds + price * (cost - mean)
