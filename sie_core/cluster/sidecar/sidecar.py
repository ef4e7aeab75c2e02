"""The sidecar's work: from the queue to the adapter process, and its results to the gateways."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from sie_core.cluster.health.workers import Workers
from sie_core.cluster.messages.errors import GIVEN_TOO_OFTEN, WORKER_LOST
from sie_core.cluster.messages.frames import FrameError
from sie_core.cluster.messages.health import WorkerReport
from sie_core.cluster.messages.work import WorkHead, batch_bytes
from sie_core.cluster.payloads.fetching import Fetcher
from sie_core.cluster.payloads.holding import Holder
from sie_core.cluster.payloads.store import PayloadStore
from sie_core.cluster.pools.assignments import ReadAssignments, ReadPools, no_pools
from sie_core.cluster.sidecar.adapter.awaiting_config import AwaitingConfig, pause_s
from sie_core.cluster.sidecar.adapter.configs import ConfigFeed
from sie_core.cluster.sidecar.adapter.dispatching import Dispatch
from sie_core.cluster.sidecar.adapter.link import Link
from sie_core.cluster.sidecar.held import Held, Recent, Slice
from sie_core.cluster.sidecar.load import Load
from sie_core.cluster.sidecar.metrics import SidecarMetrics
from sie_core.cluster.sidecar.queue.checking import checked_head
from sie_core.cluster.sidecar.queue.credit import Credit
from sie_core.cluster.sidecar.queue.gateways import Gateways, inbox_of
from sie_core.cluster.sidecar.queue.heartbeat import Heartbeat
from sie_core.cluster.sidecar.queue.large_slices import LargeSlices
from sie_core.cluster.sidecar.queue.placing import Placing
from sie_core.cluster.sidecar.queue.pulling import Pulls
from sie_core.cluster.sidecar.queue.results import Results, failure, word
from sie_core.cluster.sidecar.queue.takeover import Takeover
from sie_core.cluster.sidecar.reporting import full_report, most_cost, own_report
from sie_core.cluster.subjects import cancel_subject, gateways_subject, is_inbox
from sie_core.contracts import Delivery, InferenceError, Message, Pull, QueueError, QueueTransport
from sie_core.settings import Settings

BULK_BYTES = 512 << 20
"""Of results larger than a message that wait to be fetched."""

HEARD_S = 0.05
"""In which other workers tell what they pull, before the first work is taken."""

log = logging.getLogger(__name__)


class Sidecar:
    """One of them; it is also the gate that `Drain` closes.

    Args:
        transport: Open.
        settings: The settings in force.
        worker: The name of this worker.
        metrics: Counts.
        store: Where payloads larger than a message go.
        on_lack: Called when work comes for a config that the adapter process does not have yet.
        read_pools: Reads the resource pools, one of which may have this worker.
    """

    def __init__(
        self,
        transport: QueueTransport,
        settings: Settings,
        worker: str,
        metrics: SidecarMetrics,
        store: PayloadStore | None = None,
        on_lack: Callable[[], None] = lambda: None,
        read_pools: ReadPools = no_pools,
    ) -> None:
        self._transport, self._settings, self._metrics = transport, settings, metrics
        self._on_lack = on_lack
        self._held = Held()
        self._cancelled = Recent()
        """The replies of cancelled requests: their slices may come later than the broadcast."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._open = True
        self._inbox = ""
        holder = Holder(transport, BULK_BYTES, store, frames=settings.payload_frames)
        self._takeover = Takeover(transport, lambda reply: self._is_inbox(reply) and reply not in self._cancelled)
        self._results = Results(transport, holder, self._is_wanted, self._release)
        self._large = LargeSlices(Fetcher(transport, store), self._is_inbox, self._fetched, self._not_fetched)
        self._gateways = Gateways(transport, settings, self._fell_silent)
        self._credit = Credit(settings, asyncio.get_running_loop().call_later)
        self.assignments = ReadAssignments(read_pools, lambda: self._moved())
        self._resource_pool = partial(self.assignments.pool_of, worker)
        self._own = own_report(settings, worker)
        self._heartbeat = Heartbeat(transport, self.report, lambda: self.link.status_frame if self._open else b"")
        self.load = Load(batch_bytes(settings), most_cost(settings), self._heartbeat.soon)
        self.workers = Workers(self._heard)
        """All that are heard of, this one too."""
        connections = settings.ipc_pool_size or settings.max_concurrent_batches
        ping_s = settings.worker_ping_interval_ms / 1000
        self.dispatch = Dispatch(settings, self._send)
        self.configs = ConfigFeed(settings.bundle, lambda piece: self.link.configure(piece))
        self._awaiting = AwaitingConfig(self.dispatch.take, self._config_is_late)
        self.link = Link(
            worker, settings.ipc_socket_path, connections, ping_s, settings.worker_readyz_stale_mult,
            self._up, self._down, self._answered, self._takeover.take, self._waits_for_load, self.dispatch.queued,
            self._connected, self._configured, self._told,
        )  # fmt: skip
        self._placing = Placing(settings, worker, lambda: self.report(), self.workers, self.link.load)
        self._pulls = Pulls(
            transport, settings, self._delivered,
            self._placing, lambda: Counter(held.pull for held in self._held), self._heartbeat.soon,
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

    def report(self) -> WorkerReport:
        """Say of this worker what its heartbeats tell."""
        link, up = self.link, self.link.up and self._open
        own = replace(self._own, resource_pool=self._resource_pool())
        return full_report(
            own, self._settings, link.vitals, link.configs, self.load, self._pulls.pulled, self._placing.behind,
            up=up, draining=not self._open, held=len(self._held),
            batches=self.dispatch.batches_ahead,
        )  # fmt: skip

    async def run(self) -> None:
        """Work until cancelled."""
        inbox = await self._transport.inbox(lambda _: None)
        self._inbox = inbox.subject
        await self.assignments.look()
        await self._pulls.open()
        await self._transport.subscribe(cancel_subject(self._settings.pool), self._cancel)
        await self._transport.subscribe(gateways_subject(self._settings.pool), self._gateways.heard)
        await self.workers.hear(self._transport)
        await asyncio.sleep(HEARD_S)
        async with asyncio.TaskGroup() as tasks:
            beside = (
                self._pulls.look(),
                self._mark(),
                self._heartbeat.run(),
                self._gateways.listen(),
                self.assignments.run(),
            )
            for each in (self.link.run(), self.configs.run(), *beside):
                tasks.create_task(each)

    def close(self) -> None:
        """Take no more; what was not begun goes back at once."""
        self._open = False
        self._heartbeat.soon()
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
        self._large.close()
        await self._results.close()

    def _connected(self) -> None:
        self.configs.begin()
        self.link.pin(self.assignments.pins_of(self._own.worker))

    def _moved(self) -> None:
        """Serve another resource pool from now on; what was not begun for the former goes back."""
        pool = self._resource_pool()
        self.link.pin(self.assignments.pins_of(self._own.worker))
        self._pulls.moved()
        self._hand_back([held for held in self._not_begun() if held.head.resource_pool != pool])
        self._heartbeat.soon()

    def _heard(self, before: WorkerReport | None, now: WorkerReport) -> None:
        """Take a heartbeat; most tell nothing new, and what is pulled is decided from time to time in any case."""
        if before is None or before.news != now.news:
            self._pulls.place_soon()

    def _told(self) -> None:
        self._heartbeat.soon()
        self._pulls.place_soon()

    def _is_inbox(self, subject: str) -> bool:
        return is_inbox(subject, self._inbox)

    def _up(self) -> None:
        self._heartbeat.soon()
        if self._open:
            self._pulls.take()

    def _down(self, lost: bool) -> None:
        self._heartbeat.soon()
        self._pulls.stop()
        at_work = [held for held in self._held if held.sent and not held.answered]
        self._hand_back(self._not_begun())
        if not lost:
            return
        if at_work:
            log.warning("the adapter process ended while %d slices were at work", len(at_work))
        for held in at_work:
            # Whose next attempt runs alone: it may have been what ended the process.
            self._finish(held, word(held.head, WORKER_LOST), "lost")
        self.dispatch.clear()

    def _delivered(self, delivery: Delivery, pull: Pull) -> None:
        self._metrics.pulled.inc()
        if not (self.link.up and self._open):
            self._metrics.ended("handed_back")
            delivery.nak()
            return
        try:
            head = checked_head(delivery, self._settings.pool, self._settings.bundle, self._inbox)
        except FrameError as error:
            log.error("a message of the queue is dropped: %s", error)
            self._drop(delivery, pull, "refused")
            return
        if head.resource_pool != self._resource_pool():
            self._metrics.ended("handed_back")
            delivery.nak()  # its pull is being closed
            return
        if head.reply in self._cancelled:
            self._drop(delivery, pull, "cancelled")
            return
        if self._gateways.is_silent(head.reply):
            self._drop(delivery, pull, "gateway_lost")
            return
        if self._takeover.answered(head.id):
            self._drop(delivery, pull, "answered")
            return
        if self._delivered_again(head, delivery, pull):
            return
        self._idle.clear()
        held = self._held.add(head, delivery, pull)
        self._credit.take(pull, head.cost)
        self.load.take(head)
        if head.model not in self.link.vitals.models:
            self._heartbeat.soon()  # it will be loaded here
        if delivery.attempt >= self._settings.max_deliver:
            log.error("%s was given to workers %d times; it is refused", head.id, delivery.attempt)
            self._finish(held, word(head, GIVEN_TOO_OFTEN), "refused")
        elif held.frame:
            self._take(held)
        else:
            self._large.fetch(held)

    def _delivered_again(self, head: WorkHead, delivery: Delivery, pull: Pull) -> bool:
        """Whether a slice is held already: this process, or its adapter process, stood still beyond the ack wait."""
        for held in self._held.of_request(head.reply) if delivery.attempt > 1 else ():
            if held.head.id == head.id:
                if held.pull is pull:
                    self._credit.give(pull, idle=False)
                else:
                    self._give_credit(held)
                    held.credited = False
                    self._credit.take(pull, head.cost)
                held.delivery, held.pull = delivery, pull
                return True
        return False

    def _take(self, held: Slice) -> None:
        if self._awaiting.lacks(held.head):
            self._awaiting.take(held)
            self._on_lack()
        else:
            self.dispatch.take(held)

    def _config_is_late(self, held: Slice) -> None:
        log.warning("%s needs a config that has not come; it goes back to the queue", held.head.id)
        self._hand_back([held], pause_s(held.delivery.attempt))

    def _configured(self) -> None:
        self._awaiting.reached(self.link.configs.epoch)
        self._heartbeat.soon()

    def _fetched(self, held: Slice) -> None:
        if self._held.holds(held):
            self._take(held)

    def _not_fetched(self, held: Slice, problem: QueueError | FrameError) -> None:
        if isinstance(problem, FrameError):
            log.error("the slice %s is dropped: %s", held.head.id, problem)
            self._metrics.ended("refused")
            self._release(held)
            return
        log.warning("the slice %s could not be fetched: %s", held.head.id, problem)
        if problem.failure == "CONFIG":
            told = "A worker cannot read what its gateway stored; its log says why."
            self._finish(held, failure(held.head, InferenceError("INTERNAL_ERROR", told)), "refused")
        elif problem.failure == "NOT_FOUND":
            self._release(held)  # nobody waits for it, or its gateway sends it again
        else:
            self._hand_back([held])

    def _waits_for_load(self, number: int, waits: bool) -> None:
        """Let a slice that waits for a load hold up no other: neither here nor at the broker."""
        held = self._held.get(number)
        if held is None or not held.sent or held.answered or held.loading == waits:
            return
        self._give_credit(held)
        self.dispatch.waits_for_load(held, waits)
        self.load.waits_for_load(held.head, waits=waits)

    def _send(self, held: Slice) -> None:
        self.link.send(held.number, held.frame)
        held.frame = b""  # it may be large, and its result larger still
        if held.head.offer is not None:
            self._large.leave(held)

    def _answered(self, number: int, frame: bytes) -> None:
        held = self._held.get(number)
        if held is not None and not held.answered:
            self._metrics.items.inc(held.head.items)
            self._credit.quantum.answered(time.monotonic() - held.since)
            self._finish(held, frame, "answered")
            self.dispatch.ended(held)

    def _finish(self, held: Slice, frame: bytes, how: str) -> None:
        """Send a result; the message is acknowledged behind it."""
        self._metrics.ended(how)
        self._uncount(held, answered=how == "answered")
        held.answered = True
        self._results.send(held, frame)

    def _is_wanted(self, held: Slice) -> bool:
        reply = held.head.reply
        return self._held.holds(held) and reply not in self._cancelled and not self._gateways.is_silent(reply)

    def _release(self, held: Slice) -> None:
        """Acknowledge a slice and hold it no more."""
        if self._held.remove(held):
            held.delivery.ack()
            self._let_go(held)

    def _let_go(self, held: Slice) -> None:
        """Hold nothing of a slice that was removed from those held."""
        self._uncount(held, answered=False)
        self.dispatch.remove(held)
        self._awaiting.remove(held)
        if held.head.offer is not None:
            self._large.leave(held)
        self._results.withdraw(held)
        self._give_credit(held)
        if not self._held:
            self._idle.set()

    def _uncount(self, held: Slice, *, answered: bool) -> None:
        """Have a slice that waits no more for its answer count no more as load."""
        if not held.answered:
            if held.loading:
                self.load.waits_for_load(held.head, waits=False)
            self.load.leave(held.head, answered=answered)

    def _drop(self, delivery: Delivery, pull: Pull, how: str) -> None:
        self._metrics.ended(how)
        delivery.ack()
        self._credit.give(pull, idle=not self._held)

    def _hand_back(self, slices: list[Slice], delay_s: float = 0.0) -> None:
        for held in slices:
            if self._held.remove(held):
                if not held.answered:
                    self._metrics.ended("handed_back")
                held.delivery.nak(delay_s)
                self._let_go(held)

    def _give_credit(self, held: Slice) -> None:
        if not held.credited:
            held.credited = True
            self._credit.give(held.pull, held.head.cost, idle=not self._held)

    def _not_begun(self) -> list[Slice]:
        return [held for held in self._held if not held.sent and not held.answered]

    def _cancel(self, message: Message) -> None:
        reply = message.payload.decode("utf-8", "replace")
        if not self._is_inbox(reply):
            log.warning("a request that is cancelled has no inbox of a gateway: %r", reply[:200])
            return
        self._cancelled.add(reply)
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
            self._metrics.ended(how)
            self._release(held)
            if held.sent:
                self.link.cancel(held.number)
                self.dispatch.ended(held)

    async def _mark(self) -> None:
        """Say of what is held that it is at work, so that nobody else is given it.

        What an adapter process has that does not answer is given to others once the ack wait is over.
        """
        while True:
            await asyncio.sleep(self._settings.ack_wait_s / 3)
            for held in self._held:
                if self.link.answers or not held.sent or held.answered:
                    held.delivery.in_progress()
