"""Waiting for the backend's answer while watching the client and the clock.

It must not know what is asked or how the reply is written.
"""

from __future__ import annotations

import asyncio
import time

from starlette.types import Receive

from sie_core.api.gate import Gate
from sie_core.contracts import InferenceBackend, InferenceError, InferenceReply, InferenceRequest


async def answer(backend: InferenceBackend, gate: Gate, request: InferenceRequest, receive: Receive) -> InferenceReply:
    """Have `backend` answer `request`; a client that leaves or a deadline that passes cancels the work.

    Raises:
        InferenceError: What the backend raises; `CLIENT_CLOSED_REQUEST`, `DEADLINE_EXCEEDED`; `QUEUE_UNAVAILABLE` if
            the work was abandoned because the server stops.
    """
    work = asyncio.create_task(backend.infer(request))
    gone = asyncio.create_task(_client_gone(receive))
    gate.track(work)
    timeout = None if request.deadline is None else max(0.0, request.deadline - time.monotonic())
    try:
        await asyncio.wait((work, gone), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if work.cancelled():
            raise InferenceError(
                "QUEUE_UNAVAILABLE", "The server stopped before it could answer; retry on another one."
            )
        if work.done():
            return work.result()
        if gone.done():
            raise InferenceError("CLIENT_CLOSED_REQUEST", "The client went away before the answer.")
        raise InferenceError("DEADLINE_EXCEEDED", "The deadline of X-SIE-Timeout-Ms passed before the answer.")
    finally:
        gone.cancel()
        if not work.done():
            work.cancel()
            work.add_done_callback(_take_notice)


async def _client_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _take_notice(work: asyncio.Task[InferenceReply]) -> None:
    """Look at how cancelled work ended, so that the loop does not report it as unnoticed."""
    if not work.cancelled():
        work.exception()
