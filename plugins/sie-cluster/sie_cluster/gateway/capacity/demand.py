"""What is asked for and has no worker. Pure; the clock is given."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

from sie_cluster.gateway.capacity.lanes import Lane

LATCHED_S = 60.0
"""A request without a worker is told for so long: scalers look every half a minute."""
MOST_REMEMBERED = 1024
"""Lanes from which on those are forgotten that nobody asked for lately: names of resource pools have no end."""
_STEP_S = 1.0
"""Requests are counted by this time, so that a flood of them takes no more memory."""


class Demand:
    """The requests of the last minute that found no worker, by lane."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._asked: dict[Lane, deque[tuple[float, int]]] = {}
        """When requests came, and how many at about that time."""

    def add(self, lane: Lane) -> None:
        """Count a request."""
        now = self._clock()
        for each in tuple(self._asked) if len(self._asked) >= MOST_REMEMBERED else (lane,):
            self._forget(each, now)
        steps = self._asked.setdefault(lane, deque())
        if steps and now - steps[-1][0] < _STEP_S:
            steps[-1] = (steps[-1][0], steps[-1][1] + 1)
        else:
            steps.append((now, 1))

    def served(self, lane: Lane) -> None:
        """Take it that a worker has come."""
        self._asked.pop(lane, None)

    def pending(self) -> Iterator[tuple[Lane, int]]:
        """Yield the lanes that are asked for, and the requests of each."""
        now = self._clock()
        for lane in list(self._asked):
            self._forget(lane, now)
            if lane in self._asked:
                yield lane, sum(count for _, count in self._asked[lane])

    def _forget(self, lane: Lane, now: float) -> None:
        steps = self._asked.get(lane, deque())
        while steps and now - steps[0][0] >= LATCHED_S:
            steps.popleft()
        if not steps:
            self._asked.pop(lane, None)
