"""Bounds the requests in flight, and refuses new ones during a drain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from sie_core.contracts import InferenceError

DRAIN_RETRY_S = 5.0


class Admission:
    """Counts admitted requests on the event loop.

    Args:
        limit: How many may be in flight at once.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.closed_because: str | None = "the engine has not been started"

    def open(self) -> None:
        """Admit requests from now on."""
        self.closed_because = None

    def close(self, why: str) -> None:
        """Refuse new requests from now on; `why` is part of their error."""
        self.closed_because = why

    @property
    def in_flight(self) -> int:
        """Requests admitted and not yet answered."""
        return self._in_flight

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Hold a place for one request while the context lasts.

        Raises:
            InferenceError: `QUEUE_UNAVAILABLE` while closed, `QUEUE_FULL` with too many requests in flight.
        """
        if self.closed_because is not None:
            message = f"No new requests are taken: {self.closed_because}. Retry on another server, or later."
            raise InferenceError("QUEUE_UNAVAILABLE", message, retry_after_s=DRAIN_RETRY_S)
        if self._in_flight >= self._limit:
            message = f"{self._in_flight} requests are in flight, as many as SIE_MAX_CONCURRENT_REQUESTS allows."
            raise InferenceError("QUEUE_FULL", message)
        self._in_flight += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()

    async def idle(self, timeout_s: float) -> bool:
        """Wait until nothing is in flight; False where something still is after `timeout_s`."""
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            return False
        return True
