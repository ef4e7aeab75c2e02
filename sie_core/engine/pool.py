"""A few threads for one CPU stage of the pipeline. It must not know what the work is.

Beside `concurrent.futures` it makes no future for a task whose answer nobody fetches, and its threads are daemons: work
that hangs cannot keep the process from ending.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

log = logging.getLogger(__name__)

Work = tuple[Callable[..., None], tuple[Any, ...]]


class CpuPool:
    """Runs calls on `threads` threads, first come first served. What it queues is bounded by what the engine admits."""

    def __init__(self, name: str, threads: int) -> None:
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True) for number in range(threads)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def submit(self, call: Callable[..., None], *arguments: Any) -> None:
        """Queue a call. It must handle its own errors: what it raises is only logged."""
        self._queue.put((call, arguments))

    def close(self, timeout_s: float) -> bool:
        """Let queued work finish and join the threads; False where one was still at work after `timeout_s`."""
        until = time.monotonic() + timeout_s
        started = [thread for thread in self._threads if thread.ident is not None]
        for _ in started:
            self._queue.put(None)
        for thread in started:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in started)

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            call, arguments = work
            try:
                call(*arguments)
            except BaseException:
                log.exception("a task of %s failed beyond its own handling", threading.current_thread().name)
            del work, call, arguments  # an idle thread must not keep the last request alive
