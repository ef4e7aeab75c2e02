"""What is asked for and has no worker, and how long one took to come. Pure; the clock is given."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import ceil

from sie_cluster.gateway.capacity.lanes import Lane

LATCHED_S = 60.0
"""A request without a worker is told for so long: scalers look every half a minute."""
UNKNOWN_S = 5.0
"""Between two tries of a client, where nobody knows when a worker comes."""
MOST_S = 15.0
"""The same at most: a worker may come sooner than the last one did."""
MOST_REMEMBERED = 1024
"""Lanes of which it is known how long a worker took."""
_STEP_S = 1.0
"""Requests are counted by this time, so that a flood of them takes no more memory."""


@dataclass(slots=True)
class _Asked:
    began: float
    steps: deque[tuple[float, int]] = field(default_factory=deque)
    """When requests came, and how many at about that time."""


class Demand:
    """The requests of the last minute that found no worker, by lane."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._asked: dict[Lane, _Asked] = {}
        self._took_s: dict[Lane, float] = {}
        """Of the lanes that were served last, as names of resource pools have no end."""

    def add(self, lane: Lane) -> None:
        """Count a request."""
        now = self._clock()
        for each in tuple(self._asked) if len(self._asked) >= MOST_REMEMBERED else (lane,):
            self._forget(each, now)
        steps = self._asked.setdefault(lane, _Asked(now)).steps
        if steps and now - steps[-1][0] < _STEP_S:
            steps[-1] = (steps[-1][0], steps[-1][1] + 1)
        else:
            steps.append((now, 1))

    def served(self, lane: Lane) -> None:
        """Take it that a worker has come."""
        asked = self._asked.pop(lane, None)
        if asked is not None:
            self._took_s.pop(lane, None)
            self._took_s[lane] = self._clock() - asked.began
            if len(self._took_s) > MOST_REMEMBERED:
                del self._took_s[next(iter(self._took_s))]

    def pending(self) -> Iterator[tuple[Lane, int]]:
        """Yield the lanes that are asked for, and the requests of each."""
        now = self._clock()
        for lane in list(self._asked):
            self._forget(lane, now)
            if lane in self._asked:
                yield lane, sum(count for _, count in self._asked[lane].steps)

    def come_back_s(self, lane: Lane) -> float:
        """Return the seconds until a client should try again: when a worker comes, if it takes as long as the last."""
        asked, took_s = self._asked.get(lane), self._took_s.get(lane)
        if asked is None or took_s is None:
            return UNKNOWN_S
        left_s = asked.began + took_s - self._clock()
        return float(min(ceil(left_s), MOST_S)) if left_s > 0 else UNKNOWN_S

    def _forget(self, lane: Lane, now: float) -> None:
        asked = self._asked.get(lane)
        if asked is None:
            return
        while asked.steps and now - asked.steps[0][0] >= LATCHED_S:
            asked.steps.popleft()
        if not asked.steps:
            del self._asked[lane]
