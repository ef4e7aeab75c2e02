"""Paces large replies while small ones are being answered; without small ones, large replies are sent at once.

Moving a megabyte from a worker to its client costs milliseconds of CPU in each process on the way. Several large
replies at once occupy every core, and a small reply then waits in each process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

SMALL_BYTES: Final = 1 << 17
"""Replies below this size, request included, are small: large ones are paced in their favour."""
LARGE_BYTES: Final = 1 << 20
"""Replies above this size are paced; sizes between the two bounds neither pace nor are paced."""
PIECE_BYTES: Final = 1 << 18
"""Bytes sent at a time while pacing; a small reply may wait behind that many."""
GIVES_WAY_S: Final = 0.2
"""Pacing lasts this many seconds after the last small reply."""
BYTES_S: Final = 75e6
"""Bytes a second sent while pacing, per core: about a quarter of a core, over all processes on the way."""
MOST_CORES: Final = 4
"""One event loop moves them, however many there are."""
LATE_S: Final = 0.005
"""How far a late turn may catch up, in seconds: timers fire a millisecond late, on busy cores later."""
LOOK_S: Final = 0.05
"""Interval at which a long wait checks whether small replies are still being sent."""


class Pacing:
    """Paces the large replies of one process. Used on the event loop.

    Args:
        clock: Tells the time, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._bytes_s = BYTES_S
        self._small = self._free = -GIVES_WAY_S

    def set_cores(self, cores: int) -> None:
        """Set how many cores this process shares with the others."""
        self._bytes_s = BYTES_S * min(cores, MOST_CORES)

    @property
    def gives_way(self) -> bool:
        """Whether small answers come just now."""
        return self._clock() - self._small < GIVES_WAY_S

    def answered(self, size: int) -> None:
        """Note a reply; `size` is its bytes plus those of its request."""
        if size < SMALL_BYTES:
            now = self._clock()
            if now - self._small >= GIVES_WAY_S:
                # Turns that were booked for later came at once when the last small answers had stopped.
                self._free = now
            self._small = now

    def take(self, size: int) -> float:
        """Book `size` bytes; return the seconds until they may be sent, 0 if no small replies are being answered."""
        now = self._clock()
        if now - self._small >= GIVES_WAY_S:
            self._free = now
            return 0.0
        turn = max(now - LATE_S, self._free)
        self._free = turn + size / self._bytes_s
        return max(0.0, turn - now)

    async def turn(self, size: int) -> None:
        """Wait for the booked turn of `size` bytes, at most as long as small replies are being sent."""
        wait_s = self.take(size)
        until = self._clock() + wait_s
        try:
            while wait_s > 0 and self.gives_way:
                await asyncio.sleep(min(wait_s, LOOK_S))
                wait_s = until - self._clock()
        except asyncio.CancelledError:
            self._free -= size / self._bytes_s  # release the booking: these bytes are not sent
            raise


PACING: Final = Pacing()
"""The process-wide instance: all replies share the cores."""
