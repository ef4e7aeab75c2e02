"""Tasks of the event loop that nobody awaits, and waits that end after a while."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any


class Tasks:
    """Keeps tasks until they end: the event loop itself has weak references to them only."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self) -> None:
        """Cancel those that have not ended."""
        for task in self._tasks:
            task.cancel()

    async def ended(self, wait_s: float | None = None) -> None:
        """Wait until those that there are have ended, no longer than `wait_s`; None waits without limit."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=wait_s)


async def within(wait: Awaitable[object], wait_s: float | None) -> bool:
    """Wait for something; False where it was cancelled after `wait_s` seconds. None waits without limit."""
    try:
        async with asyncio.timeout(wait_s):
            await wait
    except TimeoutError:
        return False
    return True
