"""Waiting for the backend's answer while watching the client and the clock.

It must not know what is asked or how the reply is written.
"""

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
    """Wait for what a backend was `asked`; a client that leaves or a deadline that passes cancels it.

    The work is done in the task of the caller, so that a request costs one task, not two, beside that of its client.

    Raises:
        InferenceError: What the backend raises; `CLIENT_CLOSED_REQUEST`, `DEADLINE_EXCEEDED`; `QUEUE_UNAVAILABLE` if
            the work was abandoned because the server stops.
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
    """What the task that makes this does, until somebody ends it early; the first reason counts."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._why: InferenceError | None = None

    def end(self, why: InferenceError) -> None:
        """Cancel the task, which answers with `why`."""
        if self._why is None:
            self._why = why
            self._task.cancel()

    def reason(self) -> BaseException:
        """Say why the task was cancelled: for the reason given here, or by somebody who wants the whole task gone."""
        why, self._why = self._why, None  # kept, it and the frame that raises it would hold each other
        return asyncio.CancelledError() if why is None or self._task.uncancel() > 0 else why


async def _watch(receive: Receive, work: Work) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    work.end(InferenceError("CLIENT_CLOSED_REQUEST", "The client went away before the answer."))


def _end_at(deadline: float, work: Work) -> asyncio.TimerHandle:
    why = InferenceError("DEADLINE_EXCEEDED", "The deadline of X-SIE-Timeout-Ms passed before the answer.")
    return asyncio.get_running_loop().call_later(max(0.0, deadline - time.monotonic()), work.end, why)
