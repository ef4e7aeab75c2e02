"""The gate that admits inference requests: it bounds how many are in flight and how large, and closes to drain."""

from __future__ import annotations

import asyncio
from typing import Protocol

from sie_core.api.http.limits import MOST_BODIES
from sie_core.contracts import InferenceError
from sie_core.settings import Settings


class Endable(Protocol):
    """The work for a request, which can be cancelled."""

    def end(self, why: InferenceError) -> None:
        """Cancel the work; its request answers with `why`."""


class Gate:
    """Counts the inference requests in flight, and refuses those beyond the limits or after `close`.

    Args:
        limit: The most requests in flight.
        most_bytes: The most bytes of all their bodies; None for no limit.
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
        """Make a gate with the limits of `settings`."""
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
            InferenceError: `QUEUE_FULL`: the requests in flight hold too many bytes already.
        """
        if self._most_bytes is not None and self._bytes + size > self._most_bytes:
            message = f"The requests in flight have {self._bytes} bytes of bodies already; retry shortly."
            raise InferenceError("QUEUE_FULL", message)
        self._bytes += size

    def leave(self, size: int = 0) -> None:
        """Count an admitted request as answered and the `size` bytes of its body as released."""
        self._in_flight -= 1
        self._bytes -= size
        if not self._in_flight:
            self._idle.set()

    def track(self, work: Endable) -> None:
        """Register the work for a request, for `abandon`; `untrack` must follow."""
        self._work.add(work)

    def untrack(self, work: Endable) -> None:
        """Unregister work that is done."""
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
        """Cancel every request still in flight, which answers `QUEUE_UNAVAILABLE`; return how many there were."""
        why = "The server stopped before it could answer; retry on another one."
        for work in self._work:
            work.end(InferenceError("QUEUE_UNAVAILABLE", why))
        return len(self._work)
