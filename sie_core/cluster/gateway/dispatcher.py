"""Carries slices to the queue and results back: one inbox for all requests of a gateway."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time

from sie_core.cluster.broker import Make, ensure_queue, open_transport
from sie_core.cluster.gateway.dead_letters import bury
from sie_core.cluster.gateway.flight import Flight, Part, queue_error, unreadable
from sie_core.cluster.gateway.metrics import GatewayMetrics
from sie_core.cluster.gateway.slicing import Packed
from sie_core.cluster.messages.frames import FrameError, Pieces, decode, encode, size_of
from sie_core.cluster.messages.work import (
    MOST_RESULT_BYTES,
    ResultHead,
    batch_bytes,
    decode_result,
    encode_offered,
    read_result,
)
from sie_core.cluster.payloads.fetching import Fetcher
from sie_core.cluster.payloads.holding import Holder
from sie_core.cluster.payloads.offers import Offer
from sie_core.cluster.payloads.room import Room
from sie_core.cluster.payloads.store import PayloadStore
from sie_core.cluster.subjects import (
    HEALTH_WANTED,
    cancel_subject,
    gateways_subject,
    is_inbox,
    needed_subject,
    work_queue,
)
from sie_core.concurrency.tasks import Tasks
from sie_core.contracts import ConnectionState, InferenceError, Message, QueueError, QueueTransport, Work
from sie_core.settings import Settings

POOL_WAIT_S = 5.0
"""How long a request waits for the queue of its pool, which others may have to make."""
NEEDED_S = 30.0
"""How often workers are told at most that a model is asked for."""
LOOK_S, UNANSWERED_S, GONE_S = 0.5, 2.0, 0.25
"""Slices unanswered for two seconds are looked up; those found gone twice, a quarter of a second apart, are sent
again."""
TTL_MARGIN_S = 1.0
STORE_GRACE_S = 0.2
"""A deadline that passes while a slice is stored is told as such, by the flight's own timer."""
CLOSE_S = 2.0
BULK_BYTES = 256 << 20
"""Of slices larger than a message that wait to be fetched."""
FETCHED_BYTES = 512 << 20
"""Of results larger than a message; beyond it results wait at their workers."""
RESULT_BYTES = 1 << 30
"""Of all results of requests that are not answered yet; beyond it a request is refused that is not the oldest."""

log = logging.getLogger(__name__)


class Dispatcher:
    """The way between a gateway and its workers.

    Args:
        make: Makes the transport.
        settings: Pool, limits.
        metrics: Counts.
        store: Where payloads larger than a message go.
    """

    def __init__(
        self, make: Make, settings: Settings, metrics: GatewayMetrics, store: PayloadStore | None = None
    ) -> None:
        self._make, self._settings, self._metrics = make, settings, metrics
        self._pools: set[str] = set()
        """The queue pools that requests go to, whose queues are there."""
        self._pools_to_come: dict[str, asyncio.Task[None]] = {}
        self._transport: QueueTransport | None = None
        self._store, self._room = store, Room(FETCHED_BYTES)
        self._holder: Holder | None = None
        self._fetcher: Fetcher | None = None
        self._fetching: set[str] = set()
        """The subjects of the offers of results that are being fetched."""
        self._reply = ""
        self._numbers = self._result_bytes = 0
        self._flights: dict[str, Flight] = {}
        self._told: dict[str, float] = {}
        self._tasks = Tasks()
        self._beside: list[asyncio.Task[None]] = []
        self._look_now = asyncio.Event()
        self.connected_at = -math.inf
        """When the broker was last reached, in monotonic seconds."""
        metrics.watch(lambda: len(self._flights))

    @property
    def transport(self) -> QueueTransport:
        """The transport.

        Raises:
            InferenceError: `QUEUE_UNAVAILABLE`: the broker was not reached yet.
        """
        if self._transport is None:
            raise queue_error(QueueError("UNAVAILABLE", "the broker was not reached yet"))
        return self._transport

    @property
    def problem(self) -> str | None:
        """Why requests cannot be sent."""
        if self._transport is None:
            return "the broker was not reached yet"
        return None if self._transport.state == "connected" else f"the broker is {self._transport.state}"

    async def open(self) -> None:
        """Connect, however long that takes.

        Raises:
            QueueError: The broker refuses this user, or the queue cannot be made.
        """
        transport = await open_transport(self._make, self._changed)
        inbox = await transport.inbox(self._arrived)
        self._reply = inbox.subject
        await ensure_queue(transport, work_queue(self._settings.pool))
        self._pools.add(self._settings.pool)
        self._holder = Holder(transport, BULK_BYTES, self._store, frames=self._settings.payload_frames)
        self._fetcher = Fetcher(transport, self._store)
        self._transport = transport
        self.connected_at = time.monotonic()
        self._beside = [asyncio.create_task(each) for each in (self._look_after(), self._beat())]

    async def close(self) -> None:
        """Disconnect, once those who left are cancelled."""
        for task in (*self._beside, *self._pools_to_come.values()):
            task.cancel()
        await self._tasks.ended(CLOSE_S)
        if self._holder is not None:
            await self._holder.close()
        if self._transport is not None:
            await self._transport.close()

    def tell_again(self) -> None:
        """Tell workers anew which models are asked for: one has come that was not told."""
        self._told.clear()
        for pool, subject in {(flight.packed.pool, flight.packed.subject) for flight in self._flights.values()}:
            self._tasks.start(self._tell_needed(pool, subject))

    async def carry(self, packed: Packed, left_s: float, trace: str | None) -> Flight:
        """Send a request and wait for its results.

        Raises:
            InferenceError: What a worker answered, `DEADLINE_EXCEEDED`, `QUEUE_FULL`, `QUEUE_UNAVAILABLE`.
        """
        transport = self.transport
        self._numbers += 1
        reply = f"{self._reply}.{self._numbers}"
        most = min(transport.max_payload // 2, batch_bytes(self._settings))
        flight = self._flights[reply] = Flight(packed, reply, left_s, most, trace, self)
        try:
            if packed.pool not in self._pools:
                await self._wait_for_pool(packed.pool, left_s)
            await self._tell_needed(packed.pool, packed.subject)
            await flight.run()
        finally:
            del self._flights[reply]
            self._room.leave(flight)
            self._result_bytes -= flight.result_bytes
            for part in flight.parts:
                self._withdraw(part)
        return flight

    async def _wait_for_pool(self, pool: str, left_s: float) -> None:
        """Wait a little for the queue of a pool that a model's config names."""
        if pool not in self._pools_to_come:
            self._pools_to_come[pool] = asyncio.create_task(ensure_queue(self.transport, work_queue(pool)))
        try:
            async with asyncio.timeout(min(left_s, POOL_WAIT_S)):
                await asyncio.shield(self._pools_to_come[pool])
        except TimeoutError:
            raise queue_error(QueueError("UNAVAILABLE", f"the queue of the pool {pool} is not there")) from None
        except QueueError as error:
            self._pools_to_come.pop(pool, None)
            raise queue_error(error) from error
        self._pools_to_come.pop(pool, None)
        self._pools.add(pool)
        await self._tell_alive()

    async def publish(self, flight: Flight, part: Part, payload: Pieces) -> None:
        """Hand a slice to the queue."""
        attempt = part.head.attempt
        ttl_s = flight.until - time.monotonic() + TTL_MARGIN_S
        transport = self.transport
        whole = size_of(payload) <= transport.max_payload
        message = b"".join(payload) if whole else await self._offer(flight, part, payload)
        self._metrics.slices.inc()
        if attempt > 1:
            self._metrics.again.inc()

        def stored(outcome: int | QueueError) -> None:
            if flight.reply in self._flights:
                flight.stored(part, attempt, outcome)
            elif part.result is None and isinstance(outcome, int):
                # It was cancelled before the broker had said where it is.
                self._tasks.start(self._delete(flight.packed.pool, outcome))

        await transport.publish(Work(flight.packed.subject, part.head.id, message, max(1.0, ttl_s)), stored)

    async def _offer(self, flight: Flight, part: Part, payload: Pieces) -> bytes:
        """Hold a slice that is larger than a message until it is fetched; return what travels in its place."""
        assert self._holder is not None
        self._withdraw(part)
        left_s = flight.until - time.monotonic() + STORE_GRACE_S
        try:
            async with asyncio.timeout(max(0.0, left_s)):
                offer = part.offer = await self._holder.offer(*payload)
        except TimeoutError:
            raise QueueError("UNAVAILABLE", "the payload store did not answer in time") from None
        self._metrics.offered.inc(size_of(payload))
        return encode_offered(part.head, max(0.0, flight.until - time.monotonic()), offer.to_map())

    def _withdraw(self, part: Part) -> None:
        if part.offer is not None and self._holder is not None:
            self._holder.withdraw(part.offer)
            part.offer = None

    def bury(self, flight: Flight, part: Part, why: str) -> None:
        """Keep a slice for the operator."""
        self._metrics.dead.inc()
        self._tasks.start(bury(self.transport, flight.packed.pool, part.head, why, b"".join(flight.pack(part, 0.0))))

    def cancel(self, flight: Flight) -> None:
        """Delete what waits, and have sidecars drop what they hold."""
        parts = flight.on_the_way()
        if parts and self._transport is not None:
            self._metrics.cancelled.inc(len(parts))
            self._tasks.start(self._cancel(flight.packed.pool, flight.reply, [part.sequence for part in parts]))

    async def _cancel(self, pool: str, reply: str, sequences: list[int | None]) -> None:
        try:
            await self.transport.send(cancel_subject(pool), reply.encode())
        except QueueError as error:
            log.warning("a request that nobody waits for could not be cancelled: %s", error)
        for sequence in sequences:
            if sequence is not None:
                await self._delete(pool, sequence)

    async def _delete(self, pool: str, sequence: int) -> None:
        try:
            await self.transport.delete_work(work_queue(pool).name, sequence)
        except QueueError as error:
            log.warning("work that nobody waits for could not be deleted, it ends with its time: %s", error)

    async def _tell_needed(self, pool: str, subject: str) -> None:
        """Have workers of a pool pull the work of a subject, where they were not told lately."""
        now = time.monotonic()
        if now - self._told.get(subject, -NEEDED_S) < NEEDED_S:
            return
        self._told[subject] = now
        try:
            await self.transport.send(needed_subject(pool), subject.encode())
        except QueueError:
            self._told.pop(subject, None)

    def _arrived(self, message: Message) -> None:
        flight = self._flights.get(message.subject)
        if flight is None:
            self._metrics.dropped.inc()
            return
        try:
            head, sections = decode(message.payload)
            if "offer" in head:
                offer = Offer.from_map(head["offer"], MOST_RESULT_BYTES)
                if not is_inbox(offer.subject, self._reply):
                    raise FrameError(f"{offer.subject[:200]!r} is no inbox of a worker")
                # It is offered again until it was fetched.
                if offer.subject not in self._fetching:
                    self._fetching.add(offer.subject)
                    self._tasks.start(self._fetch(flight, offer))
                return
            result, items = read_result(head, sections)
        except FrameError as error:
            self._refuse(flight, error)
            return
        self._take(flight, result, items, len(message.payload))

    def _take(self, flight: Flight, result: ResultHead, items: list[bytes], size: int) -> None:
        if not flight.answered(result, items):
            self._metrics.dropped.inc()
            return
        flight.result_bytes += size
        self._result_bytes += size
        most = self._settings.max_reply_bytes
        if flight.result_bytes > most:
            told = f"The reply has more than {most} bytes (SIE_MAX_REPLY_BYTES); send fewer items per request."
            flight.fail(InferenceError("REPLY_TOO_LARGE", told))
        elif self._result_bytes > RESULT_BYTES and next(iter(self._flights.values())) is not flight:
            flight.fail(
                InferenceError("QUEUE_FULL", "The results that wait to be sent fill the gateway; retry shortly.")
            )

    def _refuse(self, flight: Flight, error: FrameError) -> None:
        log.error("a result cannot be read: %s", error)
        self._metrics.refused.inc()
        flight.fail(unreadable())

    async def _fetch(self, flight: Flight, offer: Offer) -> None:
        """Fetch a result that is larger than a message, once there is room for it."""
        try:
            await self._fetch_once(flight, offer)
        finally:
            self._fetching.discard(offer.subject)

    async def _fetch_once(self, flight: Flight, offer: Offer) -> None:
        assert self._fetcher is not None
        if flight.reply not in self._flights or not await self._room.enter(flight, offer.bytes):
            return
        self._metrics.fetched.inc(offer.bytes)
        try:
            result, items = decode_result(await self._fetcher.fetch(offer))
        except QueueError as error:
            log.warning("a result of %d bytes could not be fetched: %s", offer.bytes, error)
            if error.failure == "CONFIG":
                flight.fail(unreadable())
        except FrameError as error:
            self._refuse(flight, error)
        else:
            self._take(flight, result, items, offer.bytes)

    def _changed(self, state: ConnectionState) -> None:
        log.info("the connection to the broker is %s", state)
        if state == "connected":
            self._look_now.set()
            self.connected_at = time.monotonic()
            if self._transport is not None:
                self._tasks.start(self._tell_alive())
                self._tasks.start(self._ask_for_beats())
                self.tell_again()

    async def _beat(self) -> None:
        """Tell workers that this gateway waits for its results."""
        while True:
            await self._tell_alive()
            await asyncio.sleep(self._settings.health_publish_interval_ms / 1000)

    async def _ask_for_beats(self) -> None:
        with contextlib.suppress(QueueError):
            await self.transport.send(HEALTH_WANTED, b"")

    async def _tell_alive(self) -> None:
        head = {"inbox": self._reply, "beat_s": self._settings.health_publish_interval_ms / 1000}
        for pool in tuple(self._pools):
            with contextlib.suppress(QueueError):
                await self.transport.send(gateways_subject(pool), encode(head))

    async def _look_after(self) -> None:
        """Look up slices without a result: where the message is gone, the result was lost."""
        while True:
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._look_now.wait()
            except TimeoutError:
                waited_s = UNANSWERED_S
            else:
                self._look_now.clear()
                waited_s = 0.0
            for flight in list(self._flights.values()):
                for part in flight.on_the_way():
                    again_s = GONE_S if part.missed_at is not None else waited_s
                    since = max(part.sent_at, part.looked_at)
                    if part.sequence is not None and time.monotonic() - since >= again_s:
                        await self._look_up(flight, part, part.sequence)

    async def _look_up(self, flight: Flight, part: Part, sequence: int) -> None:
        part.looked_at = time.monotonic()
        try:
            if await self.transport.holds_work(work_queue(flight.packed.pool).name, sequence):
                part.missed_at = None
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
