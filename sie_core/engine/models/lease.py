"""Counts who uses a loaded model, so that it is never unloaded under a request. It must not know who that is."""

from __future__ import annotations

import asyncio
import threading
import time

from sie_core.concurrency.loop import call_soon

clock = time.monotonic


class UseCount:
    """How many requests, batches and stages hold a model. `enter` and `leave` are called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self.entered = False
        """Whether anybody held it yet."""
        self.last_used = clock()
        """When it was last taken or let go of; at first when this was made."""
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    @property
    def count(self) -> int:
        """Holders right now."""
        return self._count

    def enter(self) -> None:
        """Hold the model; `leave` must follow."""
        with self._lock:
            self._count += 1
            self.entered, self.last_used = True, clock()

    def leave(self) -> None:
        """Let go of the model."""
        with self._lock:
            self._count -= 1
            self.last_used = clock()
            waiting, self._waiting = ([], self._waiting) if self._count else (self._waiting, [])
        for loop, event in waiting:
            call_soon(loop, event.set)

    async def unused(self) -> None:
        """Wait until nobody holds the model."""
        event = asyncio.Event()
        with self._lock:
            if not self._count:
                return
            waiter = (asyncio.get_running_loop(), event)
            self._waiting.append(waiter)
        try:
            await event.wait()
        finally:
            with self._lock:
                self._waiting = [each for each in self._waiting if each is not waiter]
