"""Runs one long, rare call on a thread and awaits it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from sie_core.concurrency.loop import call_soon
from sie_core.concurrency.pool import CpuPool

Result = TypeVar("Result")


async def on_thread(name: str, call: Callable[[], Result], discard: Callable[[Result], object] | None = None) -> Result:
    """Return what `call` returns, or raise what it raises.

    The thread is a new daemon thread, so a hanging download delays neither other calls nor the end of the process.

    Args:
        name: The thread's.
        call: The call.
        discard: If the awaiting task is cancelled, called on the thread with the result of `call`, which nothing else
        sees.
    """
    outcome = _started(name, call)
    try:
        return await outcome.get()
    except asyncio.CancelledError:
        if discard is not None:
            outcome.abandon(discard)
        raise


async def on_thread_to_its_end(name: str, call: Callable[[], Result]) -> Result:
    """Like `on_thread`, but if cancelled, return only when the thread ends: it uses the caller's objects until then."""
    outcome = _started(name, call)
    try:
        await asyncio.shield(outcome.done)
    except asyncio.CancelledError:
        await asyncio.wait([outcome.done])
        raise
    return await outcome.get()


async def on_pool(pool: CpuPool, call: Callable[[], Result]) -> Result:
    """Run `call` on the pool and return or raise its outcome; starts no thread, whose stack would need memory.

    If cancelled before a thread has taken the call, it is dropped, so calls do not pile up behind one that hangs.
    """
    outcome = _Outcome(call)
    work = pool.submit(outcome.work)
    try:
        return await outcome.get()
    finally:
        pool.remove(work)


def _started(name: str, call: Callable[[], Result]) -> _Outcome[Result]:
    outcome = _Outcome(call)
    threading.Thread(target=outcome.work, name=name, daemon=True).start()
    return outcome


class _Outcome(Generic[Result]):
    """The outcome of a call on another thread. Made and awaited on the event loop."""

    def __init__(self, call: Callable[[], Result]) -> None:
        self._call = call
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()
        self._results: list[Result] = []
        self._errors: list[BaseException] = []
        self._lock = threading.Lock()
        self._discard: Callable[[Result], object] | None = None

    def work(self) -> None:
        try:
            result = self._call()
            with self._lock:
                self._results.append(result)
                discard = self._discard
            del result
            if discard is not None:
                discard(self._results.pop())
        except BaseException as error:
            self._errors.append(error)
        call_soon(self._loop, _resolve, self.done)

    def abandon(self, discard: Callable[[Result], object]) -> None:
        """Have the result discarded, now or when it comes."""
        with self._lock:
            self._discard = discard
            there = bool(self._results)
        if there:
            threading.Thread(target=lambda: discard(self._results.pop()), name="sie-discard", daemon=True).start()

    async def get(self) -> Result:
        await self.done
        if self._errors:
            raise self._errors.pop()
        return self._results.pop()


def _resolve(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
