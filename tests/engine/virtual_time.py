"""An event loop whose clock jumps to the next timer once nothing else can happen, threads included."""

from __future__ import annotations

import asyncio
import selectors
import threading
from typing import Any

LONGEST_CALL_S = 20.0
"""Real seconds a thread may take to come back."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Timers cost no time. Threads that `on_thread` starts are waited for before the clock moves.

    A thread that is to take time calls `sleep`.
    """

    def __init__(self) -> None:
        super().__init__(_Selector(self))
        self.now = 0.0
        self.sleeping = 0
        """Threads inside `sleep`."""
        self._others = frozenset(threading.enumerate())
        # Threads that were there before. One that ends meanwhile, a loop's before this one, must not hide another.

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Sleep on a thread that is not the loop's, in virtual seconds."""
        over = threading.Event()

        def wake() -> None:
            self.sleeping -= 1
            over.set()

        def begin() -> None:
            self.sleeping += 1
            self.call_later(seconds, wake)

        self.call_soon_threadsafe(begin)
        assert over.wait(LONGEST_CALL_S)

    def threads_at_work(self) -> bool:
        """Whether a thread will call back without time passing."""
        # A thread that Python did not start, such as pytest-xdist's receiver, is listed once it asks for its own name.
        ours = [each for each in threading.enumerate() if not each.name.startswith("Dummy-")]
        return sum(thread not in self._others for thread in ours) > self.sleeping


class _Selector(selectors.DefaultSelector):  # type: ignore[misc]
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        # Whether threads are at work is asked first: one that calls back and ends in between has called back by then.
        at_work = self._loop.threads_at_work()
        events = super().select(0)
        while not events and timeout != 0 and at_work:
            at_work = self._loop.threads_at_work()
            events = super().select(0.001)
        if not events and timeout:
            self._loop.now += timeout
        elif not events and timeout is None:
            raise RuntimeError("nothing will ever happen: every task waits for another")
        return events
