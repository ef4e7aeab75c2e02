"""How far a model's weights have come, and whether they still come. It must not know where from."""

from __future__ import annotations

import time

FETCH_LIMIT_S = 300.0
"""How long a fetch may tell of no progress before somebody should look: hashing a large file takes minutes, and other
processes may be fetching the same weights."""

clock = time.monotonic


class Fetching:
    """The fetch of one model's weights."""

    def __init__(self) -> None:
        self._moved_at = clock()
        self._done = self._total = 0

    def moved(self, done: int, total: int) -> None:
        """Take how many bytes have come, and of how many; from any thread."""
        if (done, total) != (self._done, self._total):
            self._done, self._total, self._moved_at = done, total, clock()

    def problem(self) -> str | None:
        """Say that nothing has come for too long."""
        if (idle := clock() - self._moved_at) <= FETCH_LIMIT_S:
            return None
        return f"nothing has come of its weights for {idle:.0f} s: {self.describe()}"

    def describe(self) -> str:
        """Say how far it is."""
        return f"{self._done / 1e6:.0f} of {self._total / 1e6:.0f} MB" if self._total else "no bytes counted yet"
