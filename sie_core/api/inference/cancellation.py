"""Waits for the backend's answer, and cancels it when the client leaves or the deadline passes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

from starlette.types import Receive

from sie_core.api.http.gate import Gate
from sie_core.contracts import InferenceError

Answer = TypeVar("Answer")


async def answer(asked: Awaitable[Answer], gate: Gate, receive: Receive, deadline: float | None) -> Answer:
    """Await `asked`, the backend's answer; a client that leaves or a deadline that passes cancels it.

    The work is done in the caller's task; another watches the client.

    Raises:
        InferenceError: What the backend raises; `CLIENT_CLOSED_REQUEST`, `DEADLINE_EXCEEDED`; `QUEUE_UNAVAILABLE` if
            the request was abandoned because the server stops.
    """
    work = Work()
    client = asyncio.create_task(_watch(receive, work))
    timer = None if deadline is None else _end_at(deadline, work)
    gate.track(work)
    try:
        return await asked
    except asyncio.CancelledError:
        raise work.reason() from None
    finally:
        gate.untrack(work)
        client.cancel()
        if timer is not None:
            timer.cancel()


class Work:
    """The work of the task that creates this, which may be cancelled with a reason; the first reason counts."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._why: InferenceError | None = None

    def end(self, why: InferenceError) -> None:
        """Cancel the task; its request answers with `why`."""
        if self._why is None:
            self._why = why
            self._task.cancel()

    def leave(self) -> None:
        """Cancel the task: its client left."""
        self.end(InferenceError("CLIENT_CLOSED_REQUEST", "The client went away before the answer."))

    def reason(self) -> BaseException:
        """Return the reason of `end`, or a `CancelledError` where the whole task was cancelled from elsewhere."""
        why, self._why = self._why, None  # kept, it and the frame that raises it would hold each other
        return asyncio.CancelledError() if why is None or self._task.uncancel() > 0 else why


async def _watch(receive: Receive, work: Work) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    work.leave()


def _end_at(deadline: float, work: Work) -> asyncio.TimerHandle:
    why = InferenceError("DEADLINE_EXCEEDED", "The deadline of X-SIE-Timeout-Ms passed before the answer.")
    return asyncio.get_running_loop().call_later(max(0.0, deadline - time.monotonic()), work.end, why)
