"""The gate that admits inference requests: it bounds how many are in flight and how large, and closes to drain."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from math import ceil, exp, inf
from typing import Final, Protocol

from sie_core.api.http.limits import MOST_BODIES
from sie_core.batching.booking import Booking
from sie_core.contracts import InferenceError
from sie_core.settings import Settings

# A request that left so many seconds ago tells a third as much of how fast places become free as one that leaves now.
MEMORY_S: Final = 4.0
CLIENT_SHARE: Final = 0.75
"""Bounds the share of the places, and of the bytes of bodies, that one client holds: others always find some."""
WAITING_SHARE: Final = 0.5
"""Bounds the share of the places that requests hold while they wait for a load: a load may hang."""
LEAST_RATE: Final = 0.5
"""Places a second; where fewer become free, nothing is known of when one will."""


class Endable(Protocol):
    """The work for a request, which can be cancelled."""

    def end(self, why: InferenceError) -> None:
        """Cancel the work; its request answers with `why`."""


class Gate:
    """Counts the inference requests in flight, and refuses those beyond the limits or after `close`.

    Args:
        limit: The most requests in flight.
        most_bytes: The most bytes of their bodies; None for no limit.
        clock: Seconds.
        setting: What the limit is set by.
    """

    def __init__(
        self,
        limit: int,
        most_bytes: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        setting: str = "SIE_MAX_CONCURRENT_REQUESTS",
    ) -> None:
        self._limit, self._setting = limit, setting
        self.refused = 0
        """Requests that found no place."""
        self._most_bytes = inf if most_bytes is None else most_bytes
        self._requests_of: Counter[Hashable] = Counter()
        self._bytes_of: Counter[Hashable] = Counter()
        self._in_flight = self._bytes = self._waiting = 0
        self.is_open = True
        """Whether new requests are taken."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._work: set[Endable] = set()
        self._clock = clock
        # Places that become free a second, as of a time.
        self._rate, self._rate_at = 0.0, clock()
        self._booking = Booking()

    @classmethod
    def of(cls, settings: Settings) -> Gate:
        """Make a gate with the limits of `settings`."""
        return cls(settings.max_concurrent_requests, MOST_BODIES * settings.max_request_body_bytes)

    @property
    def in_flight(self) -> int:
        """Requests admitted and not yet answered."""
        return self._in_flight

    @property
    def per_s(self) -> float:
        """Requests answered a second, of late."""
        return self._rate_now(self._clock())

    def enter(self, client: Hashable = None, *, also_closed: bool = False) -> None:
        """Admit one request of a client; `leave` must follow.

        Args:
            client: Whose request it is.
            also_closed: Whether it is admitted while draining too: another gate let it in.

        Raises:
            InferenceError: `QUEUE_UNAVAILABLE` while draining, `QUEUE_FULL` with too many requests in flight, with the
                time to come back where it is known how fast places become free.
        """
        if not (self.is_open or also_closed):
            raise InferenceError("QUEUE_UNAVAILABLE", "The server is shutting down; retry on another one.")
        own = self._requests_of[client]
        if self._in_flight >= self._limit:
            self.refused += 1
            message = f"{self._limit} requests are in flight already ({self._setting}); retry shortly."
            raise InferenceError("QUEUE_FULL", message, retry_after_s=self._come_back_s())
        if own >= ceil(CLIENT_SHARE * self._limit):
            self.refused += 1
            message = f"{own} requests of this client are in flight already, of {self._limit} ({self._setting}) for "
            raise InferenceError("QUEUE_FULL", message + "all clients; retry shortly.")
        self._in_flight += 1
        self._requests_of[client] = own + 1
        self._idle.clear()

    def hold(self, size: int, client: Hashable = None) -> None:
        """Count `size` more bytes of the body of an admitted request, until it leaves.

        Args:
            size: Bytes that came, or that the client said would come.
            client: Whose request it is.

        Raises:
            InferenceError: `QUEUE_FULL`: the requests in flight, or those of this client, hold too many bytes already.
        """
        total, own = self._bytes + size, self._bytes_of[client] + size
        if total > self._most_bytes or own > CLIENT_SHARE * self._most_bytes:
            of_client = f"{own - size} of them of this client"
            message = f"The requests in flight have {total - size} bytes of bodies already, {of_client}; retry shortly."
            raise InferenceError("QUEUE_FULL", message)
        self._bytes, self._bytes_of[client] = total, own

    def leave(self, size: int = 0, client: Hashable = None) -> None:
        """Count an admitted request of a client as answered and the `size` bytes of its body as released."""
        self._in_flight -= 1
        self._bytes -= size
        self._bytes_of[client] -= size
        self._requests_of[client] -= 1
        if not self._requests_of[client]:
            del self._requests_of[client], self._bytes_of[client]
        now = self._clock()
        self._rate, self._rate_at = self._rate_now(now) + 1 / MEMORY_S, now
        if not self._in_flight:
            self._idle.set()

    @contextmanager
    def waiting(self) -> Iterator[bool]:
        """Count an admitted request as waiting for a load; False where it may not wait."""
        if self._waiting >= max(1, WAITING_SHARE * self._limit):
            yield False
            return
        self._waiting += 1
        try:
            yield True
        finally:
            self._waiting -= 1

    def _rate_now(self, now: float) -> float:
        return self._rate * exp((self._rate_at - now) / MEMORY_S)

    def _come_back_s(self) -> float | None:
        now = self._clock()
        rate = self._rate_now(now)
        return None if rate < LEAST_RATE else self._booking.retry_after_s(now, 0.0, 1 / rate)

    def track(self, work: Endable) -> None:
        """Register the work for a request, for `abandon`; `untrack` must follow."""
        self._work.add(work)

    def untrack(self, work: Endable) -> None:
        """Unregister work that is done."""
        self._work.discard(work)

    def close(self) -> None:
        """Take no new requests."""
        self.is_open = False

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
