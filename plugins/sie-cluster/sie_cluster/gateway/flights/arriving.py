"""The results that come to a gateway's inbox: read, fetched where they are offered, and handed to their requests."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from sie_cluster.gateway.flights.flight import Flight, unreadable
from sie_cluster.gateway.metrics import GatewayMetrics
from sie_cluster.messages.frames import FrameError, decode
from sie_cluster.messages.work import MOST_RESULT_BYTES, ResultHead, decode_result, read_result
from sie_cluster.queue.payloads.fetching import Fetcher
from sie_cluster.queue.payloads.offers import Offer
from sie_cluster.queue.payloads.room import Room
from sie_cluster.queue.subjects import is_inbox
from sie_core.concurrency.tasks import Tasks
from sie_core.contracts import InferenceError, Message, QueueError

FETCHED_PART = 1 / 4
"""Part of a gateway's memory for results larger than a message; beyond it results wait at their workers."""
RESULTS_PART = 3 / 8
"""Part for all results of requests that are not answered yet; beyond it a request is refused that is not the oldest."""

log = logging.getLogger(__name__)


class Arriving:
    """Those of all requests on their way, bounded in bytes.

    Args:
        flights: The requests, by the subjects of their results, the oldest first.
        most_bytes: Of one reply.
        memory_bytes: Of all payloads of the gateway.
        metrics: Counts.
        tasks: Those of the owner.
    """

    def __init__(
        self, flights: Mapping[str, Flight], most_bytes: int, memory_bytes: int, metrics: GatewayMetrics, tasks: Tasks
    ) -> None:
        self._flights, self._most_bytes, self._metrics, self._tasks = flights, most_bytes, metrics, tasks
        self._room = Room(int(memory_bytes * FETCHED_PART))
        self._results_bytes = int(memory_bytes * RESULTS_PART)
        self._fetcher: Fetcher | None = None
        self._fetching: set[str] = set()
        """The subjects of the offers of results that are being fetched."""
        self._inbox = ""
        self.bytes = 0
        """Of the results of requests that are not answered yet."""

    def open(self, inbox: str, fetcher: Fetcher) -> None:
        """Fetch what is offered from now on.

        Args:
            inbox: Where results come.
            fetcher: Fetches.
        """
        self._inbox, self._fetcher = inbox, fetcher

    def leave(self, flight: Flight) -> None:
        """Hold nothing of a request any more."""
        self._room.leave(flight)
        self.bytes -= flight.result_bytes

    def arrived(self, message: Message) -> None:
        """Take a result, or the offer of one; what nobody waits for is counted."""
        flight = self._flights.get(message.subject)
        if flight is None:
            self._metrics.dropped.inc()
            return
        try:
            head, sections = decode(message.payload)
            if "offer" in head:
                self._fetch_once(flight, Offer.from_map(head["offer"], MOST_RESULT_BYTES))
                return
            result, items = read_result(head, sections)
        except FrameError as error:
            self._refuse(flight, error)
            return
        self._take(flight, result, items, len(message.payload))

    def _take(self, flight: Flight, result: ResultHead, items: list[bytes], size: int) -> None:
        before = flight.result_bytes
        taken = flight.answered(result, items, size)
        self.bytes += flight.result_bytes - before
        if not taken:
            self._metrics.dropped.inc()
            return
        if flight.result_bytes > self._most_bytes:
            told = f"The reply has more than {self._most_bytes} bytes (SIE_MAX_REPLY_BYTES)"
            flight.fail(InferenceError("REPLY_TOO_LARGE", f"{told}; send fewer items per request."))
        elif self.bytes > self._results_bytes and next(iter(self._flights.values())) is not flight:
            flight.fail(
                InferenceError("QUEUE_FULL", "The results that wait to be sent fill the gateway; retry shortly.")
            )

    def _refuse(self, flight: Flight, error: FrameError) -> None:
        log.error("a result cannot be read: %s", error)
        self._metrics.refused.inc()
        flight.fail(unreadable())

    def _fetch_once(self, flight: Flight, offer: Offer) -> None:
        """Fetch what is offered; it is offered again until it was fetched."""
        if not is_inbox(offer.subject, self._inbox):
            raise FrameError(f"{offer.subject[:200]!r} is no inbox of a worker")
        if offer.subject not in self._fetching:
            self._fetching.add(offer.subject)
            self._tasks.start(self._fetch(flight, offer))

    async def _fetch(self, flight: Flight, offer: Offer) -> None:
        """Fetch a result that is larger than a message, once there is room for it."""
        assert self._fetcher is not None
        try:
            if flight.reply not in self._flights or not await self._room.enter(flight, offer.bytes):
                return
            self._metrics.fetched.inc(offer.bytes)
            result, items = decode_result(await self._fetcher.fetch(offer))
        except QueueError as error:
            log.warning("a result of %d bytes could not be fetched: %s", offer.bytes, error)
            if error.failure == "CONFIG":
                flight.fail(unreadable())
        except FrameError as error:
            self._refuse(flight, error)
        else:
            self._take(flight, result, items, offer.bytes)
        finally:
            self._fetching.discard(offer.subject)
