"""The gate every inference request passes: how many are in flight, how large, and whether new ones are taken.

It must not know routes or why the server stops.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from sie_core.api.http.limits import MOST_BODIES
from sie_core.contracts import InferenceError
from sie_core.settings import Settings


class Endable(Protocol):
    """The work behind a request, which can be ended early."""

    def end(self, why: InferenceError) -> None:
        """End it; its request answers with `why`."""


class Gate:
    """Counts the inference requests in flight and turns away what is too many or too late.

    Args:
        limit: Requests admitted at once.
        most_bytes: Bytes of bodies that they may have altogether; None for no limit.
    """

    def __init__(self, limit: int, most_bytes: int | None = None) -> None:
        self._limit = limit
        self._most_bytes = most_bytes
        self._bytes = 0
        self._open = True
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._work: set[Endable] = set()

    @classmethod
    def of(cls, settings: Settings) -> Gate:
        """Make the gate that the settings ask for."""
        return cls(settings.max_concurrent_requests, MOST_BODIES * settings.max_request_body_bytes)

    @property
    def is_open(self) -> bool:
        """Whether new requests are taken."""
        return self._open

    @property
    def in_flight(self) -> int:
        """Requests admitted and not yet answered."""
        return self._in_flight

    def enter(self) -> None:
        """Admit one request; `leave` must follow.

        Raises:
            InferenceError: `QUEUE_UNAVAILABLE` while draining, `QUEUE_FULL` with too many requests in flight.
        """
        if not self._open:
            raise InferenceError("QUEUE_UNAVAILABLE", "The server is shutting down; retry on another one.")
        if self._in_flight >= self._limit:
            message = f"{self._limit} requests are in flight already (SIE_MAX_CONCURRENT_REQUESTS); retry shortly."
            raise InferenceError("QUEUE_FULL", message)
        self._in_flight += 1
        self._idle.clear()

    def hold(self, size: int) -> None:
        """Count `size` more bytes of the body of an admitted request, until it leaves.

        Raises:
            InferenceError: `QUEUE_FULL`: those in flight have too many already.
        """
        if self._most_bytes is not None and self._bytes + size > self._most_bytes:
            message = f"The requests in flight have {self._bytes} bytes of bodies already; retry shortly."
            raise InferenceError("QUEUE_FULL", message)
        self._bytes += size

    def leave(self, size: int = 0) -> None:
        """Count an admitted request as answered, and the `size` bytes held of its body as gone."""
        self._in_flight -= 1
        self._bytes -= size
        if not self._in_flight:
            self._idle.set()

    def track(self, work: Endable) -> None:
        """Remember the work behind a request, for `abandon`; `untrack` must follow."""
        self._work.add(work)

    def untrack(self, work: Endable) -> None:
        """Forget work that is done."""
        self._work.discard(work)

    def close(self) -> None:
        """Take no new requests."""
        self._open = False

    async def idle(self, timeout_s: float) -> bool:
        """Wait until no request is in flight; False if `timeout_s` passed first."""
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    def abandon(self) -> int:
        """End the work of every request still in flight; return how many. Each answers `QUEUE_UNAVAILABLE`."""
        why = "The server stopped before it could answer; retry on another one."
        for work in self._work:
            work.end(InferenceError("QUEUE_UNAVAILABLE", why))
        return len(self._work)
