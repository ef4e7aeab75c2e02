"""Counts who uses a loaded model, so that it is never unloaded under a request. It must not know who that is."""

from __future__ import annotations

import asyncio
import threading


class UseCount:
    """How many requests, batches and stages hold a model. `enter` and `leave` are called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    @property
    def count(self) -> int:
        """Holders right now."""
        return self._count

    def enter(self) -> None:
        """Hold the model; `leave` must follow."""
        with self._lock:
            self._count += 1

    def leave(self) -> None:
        """Let go of the model."""
        with self._lock:
            self._count -= 1
            waiting, self._waiting = ([], self._waiting) if self._count else (self._waiting, [])
        for loop, event in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    async def unused(self) -> None:
        """Wait until nobody holds the model."""
        event = asyncio.Event()
        with self._lock:
            if not self._count:
                return
            self._waiting.append((asyncio.get_running_loop(), event))
        await event.wait()
