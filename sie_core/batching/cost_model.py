"""Learns how long a batch of some cost runs. It must not know what a unit of cost is, nor what time it is now."""

from __future__ import annotations

from dataclasses import dataclass

_MEMORY = 0.95
"""What a sample's weight becomes with each later one: the last twenty count most, so a slower machine is noticed."""
_SPREAD = 1e-3
"""The squared relative spread of costs below which a slope of its own cannot be told from noise."""


@dataclass(slots=True)
class CostModel:
    """Seconds as an affine function of cost: least squares with exponentially fading weights.

    Fixed overhead and cost per unit are kept apart, so small batches do not make large ones look slow. Where the costs
    seen are all alike, or the fit is not physical (a negative overhead or slope), seconds are proportional to cost.
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
        mean = self._cost / self._weight
        variance = self._cost_cost / self._weight - mean * mean
        if variance > _SPREAD * mean * mean:
            mean_seconds = self._seconds / self._weight
            slope = (self._cost_seconds / self._weight - mean * mean_seconds) / variance
            overhead = mean_seconds - slope * mean
            if slope > 0.0 and overhead >= 0.0:
                return overhead + slope * cost
        return self._cost_seconds / self._cost_cost * cost
