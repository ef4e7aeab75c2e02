"""Large bodies are read and written on threads beside the event loop, which answers others meanwhile.

It must not know what a body holds or in which format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from anyio import CapacityLimiter, to_thread

Result = TypeVar("Result")

LARGE: Final = 131_072
"""Bytes from which work on a body leaves the loop: below, it takes the few milliseconds that others may wait."""
AT_ONCE: Final = 2
"""Bodies worked on at once: they share the interpreter with the loop, and every further one makes the loop slower."""


class Beside:
    """Threads for the large bodies of one API."""

    def __init__(self) -> None:
        self._limiter = CapacityLimiter(AT_ONCE)

    async def run(self, size: int, work: Callable[[], Result]) -> Result:
        """Do `work` on a body of `size` bytes, here or on a thread; it sees the caller's context variables.

        Raises:
            Whatever `work` raises.
        """
        if size < LARGE:
            return work()
        outcome: list[Result | _Raised] = []
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
    """What the work raised. Raised on the thread, it and the frames it passes would hold each other, and the body."""

    error: BaseException


def _outcome(work: Callable[[], Result]) -> Result | _Raised:
    try:
        return work()
    except BaseException as error:
        return _Raised(error)
