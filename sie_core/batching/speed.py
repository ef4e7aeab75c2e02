"""Learns how long batches of a model run, by their cost."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from itertools import pairwise
from math import inf
from statistics import median_low
from typing import Final

# Of the batches of about one cost, so many of late count.
SAMPLES: Final = 8


class SpeedTable:
    """The median seconds of batches by powers of two of their cost, interpolated between them."""

    def __init__(self) -> None:
        # The costs of late, and the seconds of a unit of cost in each, by the power of two.
        self._measured: dict[int, tuple[deque[int], deque[float]]] = {}
        # The mean cost and the seconds of each power of two, both ascending.
        self._points: list[tuple[float, float]] = []
        self.overhead_s = 0.0
        """Seconds of every batch that do not grow with its cost; 0 until it is known."""
        self.knows_overhead = False
        """Whether batches were measured of which one costs twice as much as another."""

    def record(self, cost: int, seconds: float) -> None:
        """Record that a batch of `cost` units ran for `seconds`."""
        near = self._measured.setdefault(cost.bit_length(), (deque(maxlen=SAMPLES), deque(maxlen=SAMPLES)))
        near[0].append(cost)
        near[1].append(seconds / cost)
        points, fastest = [], inf
        for power in sorted(self._measured, reverse=True):
            costs, prices = self._measured[power]
            mean = sum(costs) / len(costs)
            # No batch takes longer than a larger one: the first ones of a process are slow, and small.
            fastest = min(fastest, mean * median_low(prices))
            points.append((mean, fastest))
        self._points = points[::-1]
        (small, small_s), (large, large_s) = self._points[0], self._points[-1]
        self.knows_overhead = large >= 2 * small
        if self.knows_overhead:
            self.overhead_s = min(small_s, max(0.0, (small_s * large - large_s * small) / (large - small)))

    def predict(self, cost: float) -> float | None:
        """Predict the seconds of a batch of `cost` units; None before the first measurement.

        Beyond the batches that were measured they change with the cost, all but the overhead.
        """
        points = self._points
        if not points:
            return None
        place = bisect_left(points, (cost, 0.0))
        if place in (0, len(points)):
            nearest, seconds = points[max(0, place - 1)]
            return self.overhead_s + (seconds - self.overhead_s) * cost / nearest
        (small, small_s), (large, large_s) = points[place - 1], points[place]
        return small_s + (large_s - small_s) * (cost - small) / (large - small)

    def within(self, seconds: float) -> float:
        """Return the largest cost that is predicted to run for `seconds`; 0 before the first measurement."""
        if not self._points:
            return 0.0
        for (small, small_s), (large, large_s) in pairwise(self._points):
            if small_s <= seconds < large_s:
                return small + (large - small) * (seconds - small_s) / (large_s - small_s)
        nearest, nearest_s = self._points[0 if seconds < self._points[0][1] else -1]
        price_s = (nearest_s - self.overhead_s) / nearest
        return max(0.0, seconds - self.overhead_s) / price_s if price_s else inf

    @property
    def largest(self) -> float:
        """The cost of the largest batches that were measured; 0 before the first."""
        return self._points[-1][0] if self._points else 0.0

    def drain_s(self, cost: float, full: float) -> float:
        """Return how long `cost` units run in batches of `full` units; 0 before the first measurement."""
        return cost / full * (self.predict(full) or 0.0) if cost > full else self.predict(cost) or 0.0
