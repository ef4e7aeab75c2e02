"""Unawaited tasks of the event loop, and waits with a time limit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn

AGAIN_S = 1.0
"""Before work that failed begins again."""

log = logging.getLogger(__name__)


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
        """Cancel the tasks that have not ended."""
        for task in self._tasks:
            task.cancel()

    async def ended(self, wait_s: float | None = None) -> None:
        """Wait until the current tasks have ended, at most `wait_s` seconds; None waits without limit."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=wait_s)


async def supervised(what: str, work: Callable[[], Coroutine[Any, Any, object]], again_s: float = AGAIN_S) -> NoReturn:
    """Run background work until cancelled; if it fails or returns, log that and start it again.

    Without this, an unawaited task dies unseen: requests are answered and probes are green while its work is not done.

    Args:
        what: Name of the work, for the log.
        work: Starts it.
        again_s: Seconds before a restart.
    """
    while True:
        try:
            await work()
            log.error("%s: this has ended; it begins again in %g s", what, again_s)
        except asyncio.CancelledError:
            # The cancellation came from something awaited: libraries cancel their own futures when a connection ends.
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            log.exception("%s: this was cancelled from within; it begins again in %g s", what, again_s)
        except Exception:
            log.exception("%s: this has failed; it begins again in %g s", what, again_s)
        await asyncio.sleep(again_s)


async def within(wait: Awaitable[object], wait_s: float | None) -> bool:
    """Wait for something; False if it was cancelled after `wait_s` seconds. None waits without limit."""
    try:
        async with asyncio.timeout(wait_s):
            await wait
    except TimeoutError:
        return False
    return True
