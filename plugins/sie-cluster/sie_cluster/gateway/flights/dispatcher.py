"""Carries slices to the queue and results back: one inbox for all requests of a gateway."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time

from sie_cluster.gateway.flights.arriving import Arriving
from sie_cluster.gateway.flights.flight import Flight, Part, queue_error
from sie_cluster.gateway.flights.looking_up import LookUps
from sie_cluster.gateway.flights.slicing import Packed
from sie_cluster.gateway.flights.telling import Telling
from sie_cluster.gateway.metrics import GatewayMetrics
from sie_cluster.messages.frames import Pieces, size_of
from sie_cluster.messages.work import batch_bytes, encode_offered
from sie_cluster.programs.memory import gateway_bytes
from sie_cluster.queue.broker import Make, ensure_queue, open_transport
from sie_cluster.queue.dead_letters import bury
from sie_cluster.queue.payloads.fetching import Fetcher
from sie_cluster.queue.payloads.holding import Holder
from sie_cluster.queue.payloads.store import PayloadStore
from sie_cluster.queue.subjects import cancel_subject, work_queue
from sie_cluster.settings import ClusterSettings
from sie_core.concurrency.tasks import Tasks, supervised
from sie_core.contracts import ConnectionState, OnStored, QueueError, QueueTransport, Work

POOL_WAIT_S = 5.0
"""How long a request waits for the queue of its pool, which others may have to make."""
TTL_MARGIN_S = 1.0
UNSTORED_S = 2.0
"""How far apart two slices of which none was stored, nor any between, are for the broker to store nothing."""
ELECTION_S = 10.0
"""For how long a slice that is not stored is published again: brokers elect a leader within it. Once nothing was stored
for so long, requests fail at once."""
STORE_AGAIN_S = 0.25
"""Between two publications of a slice."""
NOT_STORED = ("UNAVAILABLE", "NOT_FOUND")
"""Failures of a broker that elects a leader, or has no majority: without a leader no queue has the subject."""
STORE_GRACE_S = 0.2
"""A deadline that passes while a slice is stored is told as such, by the flight's own timer."""
CLOSE_S = 2.0
MOST_MISSED = 4096
"""Requests that ended while the broker was away and are remembered, to be cancelled once it is back."""
SIDECARS_S = 3.0
"""After which they are cancelled once more: sidecars that the broker has lost too are connected again by then."""
REPLY_BYTES = 8
"""Random, of the subject that a request's results come to: too many to guess while it waits."""
OFFERED_PART = 1 / 8
"""Part of a gateway's memory for slices larger than a message that wait to be fetched."""

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
        self, make: Make, settings: ClusterSettings, metrics: GatewayMetrics, store: PayloadStore | None = None
    ) -> None:
        self._make, self._settings, self._metrics = make, settings, metrics
        self._pools: set[str] = set()
        """The queue pools that requests go to, whose queues are there."""
        self._transport: QueueTransport | None = None
        self._store = store
        self._holder: Holder | None = None
        self._reply = ""
        self._flights: dict[str, Flight] = {}
        self._missed: dict[str, tuple[str, list[int]]] = {}
        """By the reply of a request that ended while the broker was away: its pool, and where its slices are."""
        self._tasks = Tasks()
        self._beside: list[asyncio.Task[None]] = []
        self.arriving = Arriving(self._flights, settings.max_reply_bytes, gateway_bytes(settings), metrics, self._tasks)
        beat_s = settings.health_publish_interval_ms / 1000
        self._telling = Telling(lambda: self.transport, self._pools, beat_s)
        self._look_ups = LookUps(self._flights, lambda: self.transport, self._telling.waits)
        self._waits_for = "the broker was not reached yet"
        self._unstored: QueueError | None = None
        """What the broker said of the last slice where it stores none; None where it stores them, or has no room."""
        self._unstored_at = self._unstored_since = math.inf
        self._has_no_leader = False
        """Whether the last slice was not stored though the broker was there."""
        self.connected_at = -math.inf
        """When the broker was last reached, in monotonic seconds."""
        metrics.watch(lambda: len(self._flights))

    @property
    def transport(self) -> QueueTransport:
        """The transport.

        Raises:
            InferenceError: `QUEUE_UNAVAILABLE`: the broker was not reached yet, or has no queue.
        """
        if self._transport is None:
            raise queue_error(QueueError("UNAVAILABLE", self._waits_for))
        return self._transport

    @property
    def problem(self) -> str | None:
        """Why requests cannot be sent."""
        if self._transport is None:
            return self._waits_for
        return None if self._transport.state == "connected" else f"the broker is {self._transport.state}"

    @property
    def note(self) -> str | None:
        """What an operator should know of: the broker is there and has stored no slice for `UNSTORED_S`."""
        if self.problem is not None or self._unstored is None:
            return None
        if self._unstored_at - self._unstored_since < UNSTORED_S:
            return None  # one may be lost, or stored late
        return f"the broker stores no work: {self._unstored} Where its disk was full, make room and start it again."

    async def open(self) -> None:
        """Connect, however long that takes.

        Raises:
            QueueError: The broker refuses this user, or the queue cannot be made.
        """
        transport = await open_transport(self._make, self._changed)
        queue = work_queue(self._settings.pool)
        self._waits_for = f"the broker has no queue {queue.name} yet; the log says why it is not made"
        inbox = await transport.inbox(self.arriving.arrived)
        self._reply = self._telling.inbox = inbox.subject
        await ensure_queue(transport, queue)
        self._pools.add(self._settings.pool)
        self._holder = Holder(transport, int(gateway_bytes(self._settings) * OFFERED_PART), self._store)
        self.arriving.open(self._reply, Fetcher(transport, self._store))
        self._transport = transport
        self.connected_at = time.monotonic()
        beside = {"looking up slices": self._look_ups.run, "heartbeats": self._telling.beat}
        self._beside = [asyncio.create_task(supervised(what, work)) for what, work in beside.items()]

    async def close(self) -> None:
        """Disconnect, once those who left are cancelled."""
        for task in self._beside:
            task.cancel()
        await self._tasks.ended(CLOSE_S)
        if self._holder is not None:
            await self._holder.close()
        if self._transport is not None:
            await self._transport.close()

    def tell_again(self) -> None:
        """Tell workers anew which models are asked for: one has come that was not told."""
        self._telling.forget()
        for pool, subject in {(flight.packed.to.pool, flight.packed.to.subject) for flight in self._flights.values()}:
            self._tasks.start(self._telling.needed(pool, subject))

    async def carry(self, packed: Packed, left_s: float, trace: str | None) -> Flight:
        """Send a request and wait for its results.

        Raises:
            InferenceError: What a worker answered, `DEADLINE_EXCEEDED`, `QUEUE_FULL`, `QUEUE_UNAVAILABLE`.
        """
        transport = self.transport
        # Workers learn the inbox, and this of their own requests alone: nobody can answer those of others.
        reply = f"{self._reply}.{secrets.token_hex(REPLY_BYTES)}"
        most = min(transport.max_payload // 2, batch_bytes(self._settings))
        flight = self._flights[reply] = Flight(packed, reply, left_s, most, trace, self)
        try:
            if packed.to.pool not in self._pools:
                await self._wait_for_pool(packed.to.pool, left_s)
            await self._telling.needed(packed.to.pool, packed.to.subject)
            await flight.run()
        finally:
            del self._flights[reply]
            self.arriving.leave(flight)
            for part in flight.parts:
                self._withdraw(part)
        return flight

    async def _wait_for_pool(self, pool: str, left_s: float) -> None:
        """Make the queue of a pool that a model's config names, or wait a little until it is there."""
        try:
            async with asyncio.timeout(min(left_s, POOL_WAIT_S)):
                await ensure_queue(self.transport, work_queue(pool))
        except TimeoutError:
            raise queue_error(QueueError("UNAVAILABLE", f"the queue of the pool {pool} is not there")) from None
        except QueueError as error:
            raise queue_error(error) from error
        self._pools.add(pool)
        await self._telling.alive()

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

        work = Work(flight.packed.to.subject, part.head.id, message, ttl_s=max(1.0, ttl_s))
        began, loop = time.monotonic(), asyncio.get_running_loop()

        def stored(outcome: int | QueueError) -> None:
            self._judge_broker(outcome)
            if flight.reply in self._flights:
                if attempt == part.head.attempt and self._is_worth_again(outcome, began):
                    loop.call_later(STORE_AGAIN_S, again)
                else:
                    flight.stored(part, attempt, outcome)
            elif part.result is None and isinstance(outcome, int):
                # It was cancelled before the broker had said where it is.
                self._tasks.start(self._delete(flight.packed.to.pool, outcome))

        def again() -> None:
            # The broker stores an id once: a publication whose answer was lost does not count twice.
            if flight.reply in self._flights and part.result is None:
                self._tasks.start(self._publish(transport, work, stored))

        await self._publish(transport, work, stored)

    async def _publish(self, transport: QueueTransport, work: Work, stored: OnStored) -> None:
        try:
            await transport.publish(work, stored)
        except QueueError as error:
            stored(error)

    def _is_worth_again(self, outcome: int | QueueError, began: float) -> bool:
        if not isinstance(outcome, QueueError) or outcome.failure not in NOT_STORED:
            return False
        return time.monotonic() - min(began, self._unstored_since) < ELECTION_S

    def _judge_broker(self, outcome: int | QueueError) -> None:
        if not isinstance(outcome, QueueError) or outcome.failure == "FULL":
            self._unstored, self._has_no_leader = None, False
            return
        if outcome.failure not in NOT_STORED:
            return
        self._has_no_leader = self._has_no_leader or self.problem is None
        self._unstored_at = time.monotonic()
        if self._unstored is None:
            self._unstored_since = self._unstored_at
        self._unstored = outcome

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
        self._tasks.start(bury(self.transport, flight.packed.to.pool, part.head, why, b"".join(flight.pack(part, 0.0))))

    def cancel(self, flight: Flight) -> None:
        """Delete what waits, and have sidecars drop what they hold."""
        parts = flight.on_the_way()
        if parts and self._transport is not None:
            self._metrics.cancelled.inc(len(parts))
            sequences = [part.sequence for part in parts if part.sequence is not None]
            self._tasks.start(self._cancel(flight.packed.to.pool, flight.reply, sequences))

    async def _cancel(self, pool: str, reply: str, sequences: list[int]) -> None:
        try:
            await self.transport.send(cancel_subject(pool), reply.encode())
        except QueueError as error:
            log.warning("a request that nobody waits for is cancelled once the broker is back: %s", error)
            self._missed[reply] = pool, sequences
            if len(self._missed) > MOST_MISSED:
                del self._missed[next(iter(self._missed))]
            return
        for sequence in sequences:
            await self._delete(pool, sequence)

    async def _cancel_missed(self) -> None:
        """Cancel what ended while the broker was away."""
        missed, self._missed = self._missed, {}
        for reply, (pool, sequences) in missed.items():
            await self._cancel(pool, reply, sequences)
        await asyncio.sleep(SIDECARS_S)
        for reply, (pool, _) in missed.items():
            await self._cancel(pool, reply, [])

    async def _delete(self, pool: str, sequence: int) -> None:
        try:
            await self.transport.delete_work(work_queue(pool).name, sequence)
        except QueueError as error:
            log.warning("work that nobody waits for could not be deleted, it ends with its time: %s", error)

    def _changed(self, state: ConnectionState) -> None:
        log.info("the connection to the broker is %s", state)
        if state == "connected":
            self._look_ups.soon()
            self.connected_at = time.monotonic()
            if not self._has_no_leader:  # that takes another stored slice: this may be one more broker without others
                self._unstored = None
            if self._transport is not None:
                self._tasks.start(self._telling.alive())
                self._tasks.start(self._telling.ask_for_beats())
                self._tasks.start(self._cancel_missed())
                self.tell_again()
