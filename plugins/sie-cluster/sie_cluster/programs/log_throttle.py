"""Keeps a log readable under a flood: one event of a kind is told in a while, with the number of those between."""

from __future__ import annotations

import time
from collections.abc import Callable


class LogThrottle:
    """Counts events by kind; there are few kinds.

    Args:
        pause_s: Seconds between two of a kind that are told.
        clock: Monotonic seconds.
    """

    def __init__(self, pause_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._pause_s, self._clock = pause_s, clock
        self._told: dict[str, tuple[float, int]] = {}

    def tell(self, kind: str) -> int | None:
        """Count an event; return None where it is not to be told, else how many of its kind were not since the last."""
        now = self._clock()
        at, untold = self._told.get(kind, (-float("inf"), 0))
        if now - at < self._pause_s:
            self._told[kind] = at, untold + 1
            return None
        self._told[kind] = now, 0
        return untold
