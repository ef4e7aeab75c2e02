"""The gate that admits inference requests: it bounds how many are at work and how large, and closes to drain.

Requests that wait for a model to load have places of their own, so that a load that hangs takes none from the models
that are loaded.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from math import exp
from typing import Final, Protocol

from sie_core.api.http.limits import MOST_BODIES
from sie_core.api.http.waiting import WaitingPlaces
from sie_core.batching.booking import Booking
from sie_core.contracts import InferenceError
from sie_core.settings import Settings

# A request that left so many seconds ago tells a third as much of how fast places become free as one that leaves now.
MEMORY_S: Final = 4.0
CLIENTS_SHARE: Final = 0.75
"""Share of the bytes of bodies that one client may hold."""
LEAST_RATE: Final = 0.5
"""Places a second; where fewer become free, nothing is known of when one will."""


class Endable(Protocol):
    """The work for a request, which can be cancelled."""

    def end(self, why: InferenceError) -> None:
        """Cancel the work; its request answers with `why`."""


class Gate:
    """Counts the inference requests in flight, and refuses those beyond the limits or after `close`.

    Args:
        limit: The most requests at work, and the most that wait for the load of one model.
        most_bytes: The most bytes of the bodies of those at work; half of it for those that wait, and a quarter for
            those of one model. None for no limit.
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
        self._most_bytes = most_bytes
        self._bytes = 0
        self._bytes_of: Counter[Hashable] = Counter()
        self._waiting = WaitingPlaces(limit, None if most_bytes is None else most_bytes / 4)
        self.is_open = True
        """Whether new requests are taken."""
        self._in_flight = 0
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

    def enter(self) -> None:
        """Admit one request; `leave` must follow.

        Raises:
            InferenceError: `QUEUE_UNAVAILABLE` while draining, `QUEUE_FULL` with too many requests in flight, with the
                time to come back where it is known how fast places become free.
        """
        if not self.is_open:
            raise InferenceError("QUEUE_UNAVAILABLE", "The server is shutting down; retry on another one.")
        at_work = self._in_flight - self._waiting.requests
        if at_work >= self._limit:
            self.refused += 1
            message = f"{self._limit} requests are in flight already ({self._setting}); retry shortly."
            raise InferenceError("QUEUE_FULL", message, retry_after_s=self._come_back_s(at_work))
        self._in_flight += 1
        self._idle.clear()

    def hold(self, size: int, client: Hashable = None, before: int = 0) -> None:
        """Count `size` more bytes of the body of an admitted request, until it leaves.

        One client may hold three quarters of the bytes, and of what is left each other one half at most. A small body
        always finds room: all that may be at work take a sixteenth of the bytes together.

        Args:
            size: Bytes that came, or that the client said would come.
            client: Whose request it is.
            before: Bytes of the same body that are counted already.

        Raises:
            InferenceError: `QUEUE_FULL`: the requests in flight hold too many bytes already.
        """
        held, most = self._bytes - self._waiting.nbytes, self._most_bytes
        if most is not None and before + size > most // (MOST_BODIES * self._limit):
            total, own = held + size, self._bytes_of[client] + size
            if total > most * CLIENTS_SHARE and own + total > most:
                of_client = f"{own - size} of them of this client's address"
                message = f"The requests in flight have {held} bytes of bodies already, {of_client}; retry shortly."
                raise InferenceError("QUEUE_FULL", message)
        self._bytes += size
        self._bytes_of[client] += size

    def leave(self, size: int = 0, client: Hashable = None) -> None:
        """Count an admitted request as answered and the `size` bytes of its body as released."""
        self._in_flight -= 1
        self._bytes -= size
        self._bytes_of[client] -= size
        if not self._bytes_of[client]:
            del self._bytes_of[client]
        now = self._clock()
        self._rate, self._rate_at = self._rate_now(now) + 1 / MEMORY_S, now
        if not self._in_flight:
            self._idle.set()

    def waiting(self, model: str, size: int) -> AbstractContextManager[bool]:
        """Count an admitted request, with a body of `size` bytes, as waiting for a load; False where it may not wait.

        Afterwards it is at work again, beyond the limit if need be: nobody is refused who was admitted and has waited.
        """
        return self._waiting.take(model, size)

    def _rate_now(self, now: float) -> float:
        return self._rate * exp((self._rate_at - now) / MEMORY_S)

    def _come_back_s(self, at_work: int) -> float | None:
        now = self._clock()
        rate = self._rate_now(now)
        if rate < LEAST_RATE:
            return None
        return self._booking.retry_after_s(now, (at_work - self._limit) / rate, 1 / rate)

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
