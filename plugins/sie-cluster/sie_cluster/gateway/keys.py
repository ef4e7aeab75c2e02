"""Which keys have subjects of their own: as many as a broker should keep consumers for; the others share."""

from __future__ import annotations

import time
from collections.abc import Callable

from sie_cluster.queue.subjects import KEY_IDLE_S, MOST_KEYS, shared_subject


class Keys:
    """The keys that this gateway gave subjects of their own, until they are idle.

    Args:
        most: Keys that have one at a time.
        clock: Monotonic seconds.
    """

    def __init__(self, most: int = MOST_KEYS, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = most, clock
        self._given: dict[str, float] = {}
        """When each key was asked for last, the one asked for longest ago first."""

    def subject(self, work: str) -> str:
        """Name the subject of a key's work: its own, or one that it shares where too many have one.

        Args:
            work: From `work_subject`.
        """
        now = self._clock()
        while self._given and next(iter(self._given.values())) < now - KEY_IDLE_S:
            del self._given[next(iter(self._given))]
        if self._given.pop(work, None) is None and len(self._given) >= self._most:
            return shared_subject(work)
        self._given[work] = now
        return work
