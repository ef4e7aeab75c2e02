"""The sidecar's work: from the queue to the adapter process, and its results to the gateways."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Coroutine
from typing import Any

from sie_core.cluster.messages.errors import GIVEN_TOO_OFTEN, WORKER_LOST, error_to_map
from sie_core.cluster.messages.frames import FrameError, decode, encode
from sie_core.cluster.messages.work import ResultHead, WorkHead, batch_bytes, encode_result, read_work_head
from sie_core.cluster.payloads.fetching import Fetcher
from sie_core.cluster.payloads.holding import Holder
from sie_core.cluster.payloads.offers import Offer
from sie_core.cluster.payloads.room import Room
from sie_core.cluster.payloads.store import PayloadStore
from sie_core.cluster.sidecar.checking import checked_head
from sie_core.cluster.sidecar.flow import Ahead, Turns
from sie_core.cluster.sidecar.gateways import Gateways, inbox_of
from sie_core.cluster.sidecar.held import Held, Slice
from sie_core.cluster.sidecar.link import Link
from sie_core.cluster.sidecar.metrics import SidecarMetrics
from sie_core.cluster.sidecar.pulling import Pulls
from sie_core.cluster.subjects import cancel_subject, gateways_subject, health_subject, is_inbox
from sie_core.contracts import Delivery, InferenceError, Message, Pull, QueueError, QueueTransport
from sie_core.settings import Settings

REMEMBERED = 4096
"""Cancelled requests that are remembered: their slices may come later than the broadcast."""
BULK_BYTES = 512 << 20
"""Of results larger than a message that wait to be fetched."""
FETCHED_BYTES = 256 << 20
"""Of slices larger than a message that are being fetched; the others wait at their gateways."""
MOST_HELD_S = 120.0
"""How long such a result waits at most."""
AGAIN_S = 0.1
"""Between attempts to send a result while the broker is away."""

log = logging.getLogger(__name__)


class Sidecar:
    """One of them; it is also the gate that `Drain` closes.

    Args:
        transport: Open.
        settings: The settings in force.
        worker: The name of this worker.
        metrics: Counts.
        store: Where payloads larger than a message go.
    """

    def __init__(
        self,
        transport: QueueTransport,
        settings: Settings,
        worker: str,
        metrics: SidecarMetrics,
        store: PayloadStore | None = None,
    ) -> None:
        self._transport, self._settings, self._worker, self._metrics = transport, settings, worker, metrics
        self._held = Held()
        self._waiting = Turns()
        """Slices that the adapter process has not been sent."""
        self._ahead = Ahead(batch_bytes(settings))
        self._at_work = self._loading = 0
        """Slices that the adapter process has, and those of them that wait for a load."""
        self._alone = False
        """Whether the one at work is to be alone."""
        self._cancelled: dict[str, None] = {}
        self._taken_over: dict[str, None] = {}
        """Ids of slices that another sidecar had pulled, and whose results this one has sent."""
        self._results: deque[tuple[Slice, bytes]] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._changed = asyncio.Event()
        """Set when gateways should be told at once whether work is taken."""
        self._open = True
        self._inbox = ""
        self._holder = Holder(transport, BULK_BYTES, store, frames=settings.payload_frames)
        self._fetcher, self._room = Fetcher(transport, store), Room(FETCHED_BYTES)
        self._gateways = Gateways(transport, settings, self._fell_silent)
        self._pulls = Pulls(transport, settings, self._delivered)
        connections = settings.ipc_pool_size or settings.max_concurrent_batches
        ping_s = settings.worker_ping_interval_ms / 1000
        self.link = Link(
            settings.ipc_socket_path, connections, ping_s,
            self._up, self._down, self._answered, self._orphan, self._waits_for_load, self._queued,
        )  # fmt: skip
        metrics.watch(lambda: len(self._held), lambda: self.link.up)

    @property
    def in_flight(self) -> int:
        """Slices held."""
        return len(self._held)

    @property
    def problem(self) -> str | None:
        """Why no work is taken."""
        if not self._open:
            return "draining"
        if self._transport.state != "connected":
            return f"the connection to {self._transport.url} is {self._transport.state}"
        return self.link.problem

    async def run(self) -> None:
        """Work until cancelled."""
        inbox = await self._transport.inbox(lambda _: None)
        self._inbox = inbox.subject
        await self._pulls.open()
        await self._transport.subscribe(cancel_subject(self._settings.pool), self._cancel)
        await self._transport.subscribe(gateways_subject(self._settings.pool), self._gateways.heard)
        async with asyncio.TaskGroup() as tasks:
            for each in (self.link.run(), self._pulls.look(), self._mark(), self._beat(), self._gateways.listen()):
                tasks.create_task(each)

    def close(self) -> None:
        """Take no more; what was not begun goes back at once."""
        self._open = False
        self._changed.set()
        self._pulls.stop()
        self._hand_back(self._not_begun())

    async def idle(self, timeout_s: float) -> bool:
        """Wait until all that is at work is answered; False if `timeout_s` passed first."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._pulls.settled()
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def abandon(self) -> int:
        """Give back what is at work."""
        left = list(self._held)
        self._hand_back(left)
        return len(left)

    async def end(self) -> None:
        """Offer results no more: nobody would fetch them."""
        await self._holder.close()

    def _up(self) -> None:
        self._changed.set()
        if self._open:
            self._pulls.take()

    def _down(self, lost: bool) -> None:
        self._changed.set()
        self._pulls.stop()
        at_work = [held for held in self._held if held.sent and not held.answered]
        self._hand_back(self._not_begun())
        if not lost:
            return
        if at_work:
            log.warning("the adapter process ended while %d slices were at work", len(at_work))
        for held in at_work:
            # Whose next attempt runs alone: it may have been what ended the process.
            self._finish(held, _word(held.head, WORKER_LOST), "lost")
        self._at_work, self._loading, self._alone = 0, 0, False
        self._ahead.clear()

    def _delivered(self, delivery: Delivery, pull: Pull) -> None:
        self._metrics.pulled.inc()
        if not (self.link.up and self._open):
            self._metrics.ended.labels("handed_back").inc()
            delivery.nak()
            return
        try:
            head = checked_head(delivery, self._settings.pool, self._settings.bundle, self._inbox)
        except FrameError as error:
            log.error("a message of the queue is dropped: %s", error)
            self._drop(delivery, pull, "refused")
            return
        if head.reply in self._cancelled:
            self._drop(delivery, pull, "cancelled")
            return
        if self._gateways.is_silent(head.reply):
            self._drop(delivery, pull, "gateway_lost")
            return
        if self._taken_over and head.id in self._taken_over:
            self._drop(delivery, pull, "answered")
            return
        if self._delivered_again(head, delivery, pull):
            return
        self._idle.clear()
        held = self._held.add(head, delivery, pull)
        if delivery.attempt >= self._settings.max_deliver:
            log.error("%s was given to workers %d times; it is refused", head.id, delivery.attempt)
            self._finish(held, _word(head, GIVEN_TOO_OFTEN), "refused")
        elif held.frame:
            self._take(held)
        else:
            self._run(self._fetch(held))

    def _delivered_again(self, head: WorkHead, delivery: Delivery, pull: Pull) -> bool:
        """Whether a slice is held already: this process, or its adapter process, stood still beyond the ack wait."""
        for held in self._held.of_request(head.reply) if delivery.attempt > 1 else ():
            if held.head.id == head.id:
                if held.pull is pull:
                    pull.add_credit(1)
                else:
                    held.credited = False
                held.delivery, held.pull = delivery, pull
                return True
        return False

    def _orphan(self, payload: bytes) -> None:
        """Send the result of a slice that another sidecar had pulled."""
        try:
            head, (result,) = decode(payload)
            slice_id, reply = str(head["id"]), str(head["reply"])
        except (FrameError, KeyError, ValueError) as error:
            log.error("a result of another sidecar's slice cannot be read: %s", error)
            return
        # One that is larger than a message is offered once its slice is delivered again.
        if len(result) <= self._transport.max_payload and reply not in self._cancelled and is_inbox(reply, self._inbox):
            self._run(self._send_orphan(slice_id, reply, bytes(result)))

    async def _send_orphan(self, slice_id: str, reply: str, result: bytes) -> None:
        try:
            await self._transport.send(reply, result)
        except QueueError as error:
            log.warning("the result of %s waits until it is delivered again: %s", slice_id, error)
            return
        self._taken_over[slice_id] = None
        if len(self._taken_over) > REMEMBERED:
            del self._taken_over[next(iter(self._taken_over))]

    def _take(self, held: Slice) -> None:
        """Send a slice on, or have it wait for its turn."""
        if self._waiting or self._alone or held.alone or not self._may_send():
            self._waiting.add(held)
            self._dispatch()
        else:
            self._send(held)

    async def _fetch(self, held: Slice) -> None:
        """Fetch a slice that is larger than a message from the gateway that holds it."""
        try:
            offer = Offer.from_map(held.head.offer, FETCHED_BYTES)
            if not is_inbox(offer.subject, self._inbox):
                raise FrameError(f"{offer.subject[:200]!r} is no inbox of a gateway")
            await self._room.enter(held, offer.bytes)
            frame = bytes(await self._fetcher.fetch(offer)) if self._held.holds(held) else b""
            if self._held.holds(held) and read_work_head(frame).id != held.head.id:
                raise FrameError("what was fetched is another slice")
        except QueueError as error:
            log.warning("the slice %s could not be fetched: %s", held.head.id, error)
            if error.failure == "CONFIG":
                told = "A worker cannot read what its gateway stored; its log says why."
                self._finish(held, _failure(held.head, InferenceError("INTERNAL_ERROR", told)), "refused")
            elif error.failure == "NOT_FOUND":
                self._release(held)  # nobody waits for it, or its gateway sends it again
            else:
                self._hand_back([held])
        except FrameError as error:
            log.error("the slice %s is dropped: %s", held.head.id, error)
            self._metrics.ended.labels("refused").inc()
            self._release(held)
        else:
            if self._held.holds(held):
                held.frame = frame
                self._take(held)
        finally:
            self._room.leave(held)

    def _dispatch(self) -> None:
        """Send what waits, as far as there is room; what is to be alone goes when nothing is at work."""
        while self._waiting and not self._alone:
            if self._waiting.next_is_alone:
                if self._at_work:
                    return
                self._alone = True
            elif not self._may_send():
                return
            for held in self._waiting.take(batch_bytes(self._settings)):
                self._send(held)

    def _may_send(self) -> bool:
        """Whether the adapter process has less queued than it may, or nothing to do at all."""
        return self._ahead.batches < self._settings.pipeline_depth or self._at_work <= self._loading

    def _queued(self, received: int, batches: float) -> None:
        self._ahead.reported(received, batches)
        self._dispatch()

    def _waits_for_load(self, number: int, waits: bool) -> None:
        """Let a slice that waits for a load hold up no other: neither here nor at the broker."""
        held = self._held.get(number)
        if held is None or not held.sent or held.answered or held.loading == waits:
            return
        held.loading = waits
        self._loading += 1 if waits else -1
        self._give_credit(held)
        self._dispatch()

    def _send(self, held: Slice) -> None:
        held.sent = True
        self._at_work += 1
        self._ahead.sent(held.head.cost)
        self.link.send(held.number, held.frame)
        held.frame = b""  # it may be large, and its result larger still

    def _answered(self, number: int, frame: bytes) -> None:
        held = self._held.get(number)
        if held is not None and not held.answered:
            self._metrics.items.inc(held.head.items)
            self._finish(held, frame, "answered")
            self._end_work(held)

    def _end_work(self, held: Slice) -> None:
        self._at_work -= 1
        self._loading -= held.loading
        held.loading = False
        self._alone = False
        if self._waiting:
            self._dispatch()

    def _finish(self, held: Slice, frame: bytes, how: str) -> None:
        """Send a result; the message is acknowledged behind it."""
        self._metrics.ended.labels(how).inc()
        held.answered = True
        self._send_result(held, frame)

    def _send_result(self, held: Slice, frame: bytes) -> None:
        self._results.append((held, frame))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_results())

    async def _send_results(self) -> None:
        while self._results:
            held, frame = self._results[0]
            if len(frame) > self._transport.max_payload:
                self._results.popleft()
                self._run(self._offer(held, frame))
                continue
            try:
                await self._transport.send(held.head.reply, frame)
            except QueueError as error:
                if error.failure == "UNAVAILABLE":
                    # It is kept until the broker is there again.
                    await asyncio.sleep(AGAIN_S)
                    continue
                log.error("the result of %s cannot be sent: %s", held.head.id, error)
            self._results.popleft()
            if held.offer is None:
                self._release(held)

    async def _offer(self, held: Slice, frame: bytes) -> None:
        """Say where a result larger than a message can be fetched; acknowledge once it was, or nobody wants it."""
        try:
            held.offer = await self._holder.offer(frame, lambda: self._release(held))
        except QueueError as error:
            log.error("a result of %d bytes cannot be sent: %s", len(frame), error)
            self._send_result(held, _failure(held.head, _unsent(error)))
            return
        if held.head.reply in self._cancelled or not self._held.holds(held):
            self._release(held)
            return
        left_s = MOST_HELD_S if held.head.left_s is None else min(MOST_HELD_S, held.head.left_s)
        asyncio.get_running_loop().call_later(left_s, self._release, held)
        self._send_result(held, encode({"offer": held.offer.to_map()}))

    def _release(self, held: Slice) -> None:
        """Acknowledge a slice and hold it no more."""
        if self._held.remove(held):
            held.delivery.ack()
            self._give_credit(held)
        if held.offer is not None:
            self._holder.withdraw(held.offer)
        if not self._held:
            self._idle.set()

    def _drop(self, delivery: Delivery, pull: Pull, how: str | None) -> None:
        if how is not None:
            self._metrics.ended.labels(how).inc()
        delivery.ack()
        pull.add_credit(1)

    def _hand_back(self, slices: list[Slice]) -> None:
        for held in slices:
            self._waiting.remove(held)
            if self._held.remove(held):
                self._metrics.ended.labels("handed_back").inc()
                held.delivery.nak()
                self._give_credit(held)
        if not self._held:
            self._idle.set()

    def _give_credit(self, held: Slice) -> None:
        if not held.credited:
            held.credited = True
            held.pull.add_credit(1)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _not_begun(self) -> list[Slice]:
        return [held for held in self._held if not held.sent and not held.answered]

    def _cancel(self, message: Message) -> None:
        reply = message.payload.decode("utf-8", "replace")
        if not is_inbox(reply, self._inbox):
            log.warning("a request that is cancelled has no inbox of a gateway: %r", reply[:200])
            return
        self._cancelled[reply] = None
        if len(self._cancelled) > REMEMBERED:
            del self._cancelled[next(iter(self._cancelled))]
        self._cancel_slices(self._held.of_request(reply), "cancelled")

    def _fell_silent(self, inbox: str) -> None:
        self._cancel_slices([held for held in self._held if inbox_of(held.head.reply) == inbox], "gateway_lost")

    def _cancel_slices(self, slices: list[Slice], how: str) -> None:
        """Hold slices no more that nobody waits for."""
        for held in slices:
            if held.answered:
                if held.offer is not None:
                    self._release(held)
                continue
            self._metrics.ended.labels(how).inc()
            self._release(held)
            if held.sent:
                self.link.cancel(held.number)
                self._end_work(held)
            else:
                self._waiting.remove(held)

    async def _mark(self) -> None:
        """Say of what is held that it is at work, so that nobody else is given it.

        What an adapter process has that does not answer is given to others once the ack wait is over.
        """
        while True:
            await asyncio.sleep(self._settings.ack_wait_s / 3)
            for held in self._held:
                if self.link.answers or not held.sent or held.answered:
                    held.delivery.in_progress()

    async def _beat(self) -> None:
        """Tell gateways of this worker."""
        told: object = None
        interval_s = self._settings.health_publish_interval_ms / 1000
        beat_at = 0.0
        while True:
            self._changed.clear()
            up, status = self.link.up and self._open, self.link.status_frame if self._open else b""
            if (up, status) != told or time.monotonic() >= beat_at:
                told, beat_at = (up, status), time.monotonic() + interval_s
                head = {
                    "worker": self._worker,
                    "pool": self._settings.pool,
                    "bundle": self._settings.bundle,
                    "up": up,
                    "held": len(self._held),
                }
                try:
                    await self._transport.send(health_subject(self._worker), encode(head, (status,)))
                except QueueError:
                    told = None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(1.0, interval_s)):
                    await self._changed.wait()


def _word(head: WorkHead, code: str) -> bytes:
    """Write the result of a slice that its gateway decides about."""
    return encode_result(ResultHead(head.request_id, head.slice, head.attempt, 0, error={"code": code}))


def _failure(head: WorkHead, error: InferenceError) -> bytes:
    return encode_result(ResultHead(head.request_id, head.slice, head.attempt, 0, error=error_to_map(error)))


def _unsent(error: QueueError) -> InferenceError:
    """Tell a client why a result that is larger than a message did not come."""
    if error.failure == "TOO_LARGE":
        told = "The result is larger than the queue takes; ask for fewer items at a time, or a smaller dtype."
        return InferenceError("REPLY_TOO_LARGE", told)
    return InferenceError("RESOURCE_EXHAUSTED", "The worker has no room for so large a result just now; retry.")
