"""How much of a model's weights has been fetched, and whether the fetch still makes progress."""

from __future__ import annotations

import time
from collections.abc import Callable


class DownloadProgress:
    """The progress of one fetch, in bytes.

    Args:
        limit_s: How long it may stand still before that is a problem.
        clock: Monotonic seconds.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._moved_at = clock()
        self._done = self._total = 0

    def moved(self, done: int, total: int) -> None:
        """Record that `done` of `total` bytes are here; called from any thread."""
        if (done, total) != (self._done, self._total):
            self._done, self._total, self._moved_at = done, total, self._clock()

    def problem(self) -> str | None:
        """Describe a fetch that made no progress for `limit_s`; None for any other."""
        if (idle := self._clock() - self._moved_at) <= self._limit_s:
            return None
        return f"nothing has come of its weights for {idle:.0f} s: {self.describe()}"

    def left_s(self, elapsed_s: float) -> float | None:
        """Return how many seconds the fetch will still take at its pace so far; None before anything has come."""
        return elapsed_s * (self._total - self._done) / self._done if self._done else None

    def describe(self) -> str:
        """Describe how many bytes were fetched."""
        return f"{self._done / 1e6:.0f} of {self._total / 1e6:.0f} MB" if self._total else "no bytes counted yet"
