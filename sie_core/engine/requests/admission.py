"""Admits requests while the engine runs: those before the start wait for it, those during the close are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

from sie_core.contracts import DecodeRequest, InferenceError, InferenceRequest, LoadWait, TokenizeRequest
from sie_core.engine.requests.errors import deadline_exceeded

AnyRequest = InferenceRequest | TokenizeRequest | DecodeRequest

CLOSED_RETRY_S = 5.0
"""Seconds after which a client may come again that a closing server refuses."""


class Admission:
    """Used on the event loop; `limit` bounds the requests in flight."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit  # None if the API's gate, which counts the same requests, bounds them
        self.in_flight = 0
        self.closed_because: str | None = "the engine has not been started"
        self._begun = asyncio.Event()

    def open(self) -> None:
        """Admit requests from now on."""
        self.closed_because = None
        self._begun.set()

    def close(self, why: str) -> None:
        """Admit none from now on."""
        self.closed_because = why
        self._begun.set()

    async def begun(self) -> None:
        """Wait until the engine has started, or was closed."""
        await self._begun.wait()

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Hold a place for one request while the context lasts, or raise `QUEUE_UNAVAILABLE` or `QUEUE_FULL`."""
        if self.closed_because is not None:
            message = f"No new requests are taken: {self.closed_because}. Retry on another server, or later."
            raise InferenceError("QUEUE_UNAVAILABLE", message, retry_after_s=CLOSED_RETRY_S)
        if self._limit is not None and self.in_flight >= self._limit:
            message = f"{self.in_flight} requests are in flight, as many as SIE_MAX_CONCURRENT_REQUESTS allows."
            raise InferenceError("QUEUE_FULL", message)
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1


def waiting_for_load(request: AnyRequest, clock: Callable[[], float]) -> AbstractContextManager[LoadWait]:
    """Return how long a request waits for a load: until its deadline at most.

    A request refused after its deadline gets `DEADLINE_EXCEEDED`: retrying would not help.
    """
    wait, deadline = request.load_wait, request.deadline
    return nullcontext(wait) if deadline is None else _waiting_until(deadline, wait, clock)


@contextmanager
def _waiting_until(deadline: float, wait: LoadWait, clock: Callable[[], float]) -> Iterator[LoadWait]:
    try:
        yield replace(wait, seconds=min(wait.seconds, deadline - clock()))
    except InferenceError:
        if clock() >= deadline:
            raise deadline_exceeded() from None
        raise
