"""Reads and writes large bodies on threads, so that the event loop answers other requests meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final, TypeVar

from anyio import CapacityLimiter, to_thread

Result = TypeVar("Result")

LARGE: Final = 131_072
"""Bytes from which a body is large; work on a smaller one takes a few milliseconds, for which others may wait."""
AT_ONCE: Final = 2
"""Threads: each shares the interpreter's lock with the event loop and makes it slower."""
VERY_LARGE: Final = 4 * 2**20
"""Bytes from which bodies are worked on one after another, so that another thread is there for smaller ones."""


class BodyThreads:
    """Threads for the large bodies of one API."""

    def __init__(self) -> None:
        self._limiter = CapacityLimiter(AT_ONCE)
        self._one_very_large = asyncio.Lock()

    async def run(self, size: int, work: Callable[[], Result]) -> Result:
        """Do `work` on a body of `size` bytes, here or on a thread; it sees the caller's context variables.

        Raises:
            Whatever `work` raises.
        """
        if size < LARGE:
            return work()
        outcome: list[Result | _Raised] = []
        turn = self._one_very_large if size >= VERY_LARGE else nullcontext()
        async with turn:
            await to_thread.run_sync(lambda: outcome.append(_outcome(work)), limiter=self._limiter)
        result = outcome.pop()
        if not isinstance(result, _Raised):
            return result
        try:
            raise result.error
        finally:
            del result


@dataclass(frozen=True, slots=True)
class _Raised:
    """The exception of the work. Raised on the thread, it and its frames would form a cycle that holds the body."""

    error: BaseException


def _outcome(work: Callable[[], Result]) -> Result | _Raised:
    try:
        return work()
    except BaseException as error:
        return _Raised(error)
