"""Which keys of a queue have subjects of their own: as many as it has room for consumers; the others share."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

from sie_cluster.queue.subjects import KEY_IDLE_S, MOST_KEYS, shared_subject, work_queue

LOOK_S = 1.0
"""Between two looks at what is pulled."""


class Keys:
    """The keys that this gateway gave subjects of their own lately, beside those that workers pull.

    Args:
        pulled: Gives the subjects that each living worker pulls.
        most: Of the consumers of a queue.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        pulled: Callable[[], Iterable[Collection[str]]] = tuple[Collection[str]],
        most: int = MOST_KEYS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pulled, self._most, self._clock = pulled, most, clock
        self._given: dict[str, dict[str, float]] = {}
        """By queue pool the keys and when each was asked for last, the oldest first."""
        self._looked: tuple[float, frozenset[str]] = (0.0, frozenset())

    def subject(self, pool: str, work: str) -> str:
        """Name the subject of a key's work: its own, or one that it shares where the queue is full.

        Args:
            pool: The queue pool.
            work: From `work_subject`.
        """
        now = self._clock()
        if pool not in self._given:
            busy = {name: keys for name, keys in self._given.items() if keys and _last(keys) >= now - KEY_IDLE_S}
            self._given = {**busy, pool: {}}
        given = self._given[pool]
        if given.pop(work, None) is None and not self._has_room(pool, work, given, now):
            return shared_subject(work)
        given[work] = now
        return work

    def _has_room(self, pool: str, work: str, given: dict[str, float], now: float) -> bool:
        while given and next(iter(given.values())) < now - KEY_IDLE_S:
            del given[next(iter(given))]
        if len(given) >= self._most:
            return False
        there = self._pulled_now(now)
        if work in there:
            return True
        prefix = work_queue(pool).subjects[0].removesuffix(">")
        return sum(each.startswith(prefix) for each in there.union(given)) < self._most

    def _pulled_now(self, now: float) -> frozenset[str]:
        if not self._looked[1] or now - self._looked[0] >= LOOK_S:
            self._looked = now, frozenset().union(*self._pulled())
        return self._looked[1]


def _last(keys: dict[str, float]) -> float:
    return next(reversed(keys.values()))
