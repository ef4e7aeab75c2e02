"""The queued units of one inference key, in order of arrival."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable

from sie_core.contracts import QueuedUnit


class Lane:
    """A queue from which any unit can be removed in constant time."""

    __slots__ = ("announced", "cost", "key", "requests", "units")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.units: OrderedDict[int, QueuedUnit] = OrderedDict()
        """The units by ticket: their number in order of arrival."""
        self.requests: Counter[Hashable] = Counter()
        """Queued units of each request."""
        self.cost = 0
        self.announced = -1
        """The ticket under which the lane was last pushed onto the heap of lanes."""

    def add(self, ticket: int, queued: QueuedUnit) -> None:
        """Queue a unit behind all others."""
        self.units[ticket] = queued
        self.requests[queued.request] += 1
        self.cost += queued.unit.cost

    def remove(self, ticket: int) -> QueuedUnit:
        """Remove a unit from anywhere in the queue."""
        queued = self.units.pop(ticket)
        self.cost -= queued.unit.cost
        self.requests[queued.request] -= 1
        if not self.requests[queued.request]:
            del self.requests[queued.request]
        return queued

    def head(self) -> tuple[int, QueuedUnit]:
        """Return the oldest unit and its ticket."""
        return next(iter(self.units.items()))
