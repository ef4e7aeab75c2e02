"""Large answers give way to small ones: while those come, megabytes are moved at a bounded rate, else at once.

To move a megabyte from a worker to its client takes milliseconds of CPU in each process on its way, which large answers
at once take of every core, and a small answer waits at each of these processes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

SMALL_BYTES: Final = 1 << 17
"""An answer of fewer, those of its request included, is one to give way to."""
LARGE_BYTES: Final = 1 << 20
"""What has more gives way; what lies between does neither."""
PIECE_BYTES: Final = 1 << 18
"""Moved at a time meanwhile: what a small answer may wait behind."""
GIVES_WAY_S: Final = 0.2
"""From the last small answer on."""
BYTES_S: Final = 75e6
"""Moved meanwhile in a second, for each core that there is: about a quarter of it, over all processes on the way."""
MOST_CORES: Final = 4
"""One event loop moves them, however many there are."""
LATE_S: Final = 0.005
"""What a turn that came late may make up for: timers are late by a millisecond, and on busy cores by more."""
LOOK_S: Final = 0.05
"""How often a long wait looks whether small answers still come."""


class Pacing:
    """Paces what one process moves. Used on the event loop.

    Args:
        clock: Tells the time, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._bytes_s = BYTES_S
        self._small = self._free = -GIVES_WAY_S

    def set_cores(self, cores: int) -> None:
        """Say how many cores this process shares with the others."""
        self._bytes_s = BYTES_S * min(cores, MOST_CORES)

    @property
    def gives_way(self) -> bool:
        """Whether small answers come just now."""
        return self._clock() - self._small < GIVES_WAY_S

    def answered(self, size: int) -> None:
        """Note an answer of so many bytes, those of its request included."""
        if size < SMALL_BYTES:
            now = self._clock()
            if now - self._small >= GIVES_WAY_S:
                # Turns that were booked for later came at once when the last small answers had stopped.
                self._free = now
            self._small = now

    def take(self, size: int) -> float:
        """Take the next turn, for so many bytes; return in how many seconds it is, 0 where no small answers come."""
        now = self._clock()
        if now - self._small >= GIVES_WAY_S:
            self._free = now
            return 0.0
        turn = max(now - LATE_S, self._free)
        self._free = turn + size / self._bytes_s
        return max(0.0, turn - now)

    async def turn(self, size: int) -> None:
        """Wait for the turn of so many bytes; no longer than small answers come."""
        wait_s = self.take(size)
        until = self._clock() + wait_s
        try:
            while wait_s > 0 and self.gives_way:
                await asyncio.sleep(min(wait_s, LOOK_S))
                wait_s = until - self._clock()
        except asyncio.CancelledError:
            self._free -= size / self._bytes_s  # others need not wait for what is not moved
            raise


PACING: Final = Pacing()
"""Of the process, as its cores are."""
