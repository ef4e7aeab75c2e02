"""Looks up slices without an answer: where the message is gone, the result was lost, and the slice is sent again.

Where it is there, workers are told again that its key is asked for: nobody looks into the queue for work.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from sie_cluster.gateway.flights.flight import Flight, Part
from sie_cluster.queue.subjects import consumer_name, work_queue
from sie_core.concurrency.tasks import within
from sie_core.contracts import ConsumerLookup, QueueError, QueueTransport

LOOK_S, UNANSWERED_S, GONE_S = 0.5, 2.0, 0.25
"""Slices unanswered for two seconds are looked up; those found gone twice, a quarter of a second apart, are sent
again."""

log = logging.getLogger(__name__)


class LookUps:
    """Those of all requests on their way.

    Args:
        flights: The requests, by the subjects of their results.
        transport: Gives the transport.
        waits: Called with the queue pool and the subject of a slice that is in the queue.
    """

    def __init__(
        self,
        flights: Mapping[str, Flight],
        transport: Callable[[], QueueTransport],
        waits: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._flights, self._transport, self._waits = flights, transport, waits
        self._now = asyncio.Event()

    def soon(self) -> None:
        """Look up every slice without a result at once: what was on its way may be lost."""
        self._now.set()

    async def run(self) -> None:
        """Look again and again until cancelled."""
        while True:
            asked = await within(self._now.wait(), LOOK_S) or self._now.is_set()
            waited_s = 0.0 if asked else UNANSWERED_S
            self._now.clear()
            try:
                await self._look(waited_s)
            except Exception:  # without this task no lost result would be noticed any more
                log.exception("slices without a result could not be looked up; they are tried again")

    async def _look(self, waited_s: float) -> None:
        for flight in list(self._flights.values()):
            for part in flight.on_the_way():
                again_s = GONE_S if part.missed_at is not None else waited_s
                since = max(part.sent_at, part.looked_at)
                if part.sequence is not None and time.monotonic() - since >= again_s:
                    await self._look_up(flight, part, part.sequence, by_message=again_s < UNANSWERED_S)

    async def _look_up(self, flight: Flight, part: Part, sequence: int, *, by_message: bool) -> None:
        """Look one up: by its message alone where it may be gone, or its consumer may have been lost with a broker."""
        part.looked_at = time.monotonic()
        pool, subject = flight.packed.to.pool, flight.packed.to.subject
        try:
            if await self._is_there(work_queue(pool).name, sequence, None if by_message else consumer_name(subject)):
                part.missed_at = None
                await self._waits(pool, subject)
                return
        except QueueError:
            return
        now = time.monotonic()
        if part.sequence != sequence or part.result is not None or flight.reply not in self._flights:
            return
        if part.missed_at is None:
            part.missed_at = now
        elif now - part.missed_at >= GONE_S:
            log.warning("the result of %s was lost; it is sent again", part.head.id)
            flight.try_again(part)

    async def _is_there(self, queue: str, sequence: int, consumer: str | None) -> bool:
        transport = self._transport()
        if (
            consumer is not None
            and isinstance(transport, ConsumerLookup)
            and await transport.waits_for(queue, sequence, consumer)
        ):
            return True
        return await transport.holds_work(queue, sequence)
