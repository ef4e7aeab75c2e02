"""The sidecar's work: from the queue to the adapter process, and its results to the gateways."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from math import ceil

from sie_cluster.fleet.health.workers import Workers
from sie_cluster.fleet.pools.assignments import Assignments
from sie_cluster.messages.frames import FrameError, NewerFrame
from sie_cluster.messages.health import WorkerReport
from sie_cluster.queue.payloads.store import PayloadStore
from sie_cluster.queue.subjects import ANY_PROFILE, cancel_subject, gateways_subject, is_inbox
from sie_cluster.settings import ClusterSettings
from sie_cluster.sidecar.adapter.configs import ConfigFeed
from sie_cluster.sidecar.adapter.link import Link
from sie_cluster.sidecar.held import Recent, pause_s
from sie_cluster.sidecar.metrics import SidecarMetrics
from sie_cluster.sidecar.queue.checking import checked_head
from sie_cluster.sidecar.queue.gateways import Gateways, inbox_of
from sie_cluster.sidecar.queue.heartbeat import Heartbeat
from sie_cluster.sidecar.queue.placing import Placing
from sie_cluster.sidecar.queue.pulling import Pulls
from sie_cluster.sidecar.slices import Slices
from sie_core.contracts import Delivery, Message, Pull, QueueTransport, Tracer

NEWER_S = 1.0
"""Bounds from below the seconds until a message of a newer release is delivered again, perhaps to a newer worker."""
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
        tracer: Records the traces that gateways began; None records none.
    """

    def __init__(
        self,
        transport: QueueTransport,
        settings: ClusterSettings,
        worker: str,
        metrics: SidecarMetrics,
        store: PayloadStore | None = None,
        on_lack: Callable[[], None] = lambda: None,
        tracer: Tracer | None = None,
    ) -> None:
        self._transport, self._settings, self._worker, self._metrics = transport, settings, worker, metrics
        self._cancelled = Recent()
        """The replies of cancelled requests: their slices may come later than the broadcast."""
        self._open = True
        self._inbox = ""
        self._gateways = Gateways(transport, settings, self._fell_silent)
        self.assignments = Assignments(transport, settings, worker, lambda: self._moved())
        self._heartbeat = Heartbeat(transport, self.report, lambda: self.link.status_frame if self._open else b"")
        self.slices = Slices(transport, settings, metrics, self, store, self._heartbeat.soon, on_lack, tracer)
        self.workers = Workers(self._heard)
        """All that are heard of, this one too."""
        # An adapter process that stands still is noticed within the ack wait: after that its work is elsewhere.
        missed_pings = settings.worker_readyz_stale_mult
        self.configs = ConfigFeed(settings.bundle, lambda piece: self.link.configure(piece))
        self.link: Link = Link(
            worker,
            settings.ipc_socket_path,
            self,
            connections=settings.ipc_pool_size or settings.max_concurrent_batches,
            ping_s=min(settings.worker_ping_interval_ms / 1000, settings.ack_wait_s / (missed_pings + 1)),
            missed_pings=missed_pings,
            brings_configs=settings.config_service_url is not None,
        )
        self._placing = Placing(settings, worker, lambda: self.report(), self.workers, self.link.load)
        self._pulls = Pulls(
            transport, settings, self._delivered, self._placing, self.slices.credit, self._heartbeat.soon,
        )  # fmt: skip
        metrics.watch(lambda: len(self.slices), lambda: self.link.up)

    @property
    def in_flight(self) -> int:
        """Slices held."""
        return len(self.slices)

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
        settings, vitals, slices = self._settings, self.link.vitals, self.slices
        gpu_type, gpu_count = _gpus(settings, vitals.gpu_type)
        return WorkerReport(
            self._worker,
            settings.pool,
            settings.bundle,
            resource_pool=self.assignments.pool,
            profile=settings.own_profile or ANY_PROFILE,
            gpu_type=gpu_type,
            gpu_count=gpu_count,
            up=self.link.up and self._open,
            draining=not self._open,
            saturated=slices.load.saturated,
            held=len(slices),
            queued_cost=slices.load.cost,
            batches=ceil(slices.dispatch.batches_ahead),
            models=slices.load.models(vitals),
            memory_used_bytes=vitals.memory_used_bytes,
            memory_total_bytes=vitals.memory_total_bytes,
            pulled=self._pulls.pulled,
            behind=self._placing.behind,
            config_hash=self.link.configs.hash,
            config_epoch=self.link.configs.epoch,
            url=vitals.url,
            beat_s=settings.health_publish_interval_ms / 1000,
        )

    async def run(self) -> None:
        """Work until cancelled."""
        inbox = await self._transport.inbox(lambda _: None)
        self._inbox = inbox.subject
        await self.assignments.begin()
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
        self.slices.hand_back_waiting()

    async def idle(self, timeout_s: float) -> bool:
        """Wait until all that is at work is answered; False if `timeout_s` passed first."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._pulls.settled()
                await self.slices.none_left()
        except TimeoutError:
            return False
        return True

    def abandon(self) -> int:
        """Give back what is at work."""
        return self.slices.hand_back_all()

    async def end(self) -> None:
        """Offer results no more: nobody would fetch them."""
        await self.slices.end()

    def is_inbox(self, subject: str) -> bool:
        """Whether a subject is the inbox of a gateway."""
        return is_inbox(subject, self._inbox)

    def is_wanted(self, reply: str) -> bool:
        """Whether somebody may wait for the result that a reply takes."""
        return self._unwanted(reply) is None

    def adapter_connected(self) -> None:
        """Tell the adapter process all configs and pins."""
        self.configs.begin()
        self.link.pin(self.assignments.pins)

    def _moved(self) -> None:
        """Serve another resource pool from now on; what was not begun for the former goes back."""
        self.link.pin(self.assignments.pins)
        self._pulls.moved()
        self.slices.hand_back_waiting(besides=self.assignments.pool)
        self._heartbeat.soon()

    def _heard(self, before: WorkerReport | None, now: WorkerReport) -> None:
        """Take a heartbeat; most tell nothing new, and what is pulled is decided from time to time in any case."""
        if before is None or before.news != now.news:
            self._pulls.place_soon()

    def adapter_told(self) -> None:
        """Tell others, and decide anew what is pulled."""
        self._heartbeat.soon()
        self._pulls.place_soon()

    def adapter_up(self) -> None:
        """Pull."""
        self._heartbeat.soon()
        if self._open:
            self._pulls.take()

    def adapter_down(self, *, lost: bool) -> None:
        """Pull no more, and give back what was not begun; what was at work is lost, or goes to others."""
        self._heartbeat.soon()
        self._pulls.stop()
        self.slices.hand_back_waiting(failed=self.link.failed)
        if lost:
            self.slices.lost()
        elif not self.link.answers:
            self.slices.stood_still()

    def _delivered(self, delivery: Delivery, pull: Pull) -> None:
        self._metrics.pulled.inc()
        if not (self.link.up and self._open):
            self._metrics.ended("handed_back")
            delivery.nak(pause_s(delivery.attempt) if self._open and self.link.failed else 0.0)
            return
        try:
            head = checked_head(delivery, self._settings.pool, self._settings.bundle, self._inbox)
        except NewerFrame as error:
            log.warning("a message of the queue is left to a newer worker: %s", error)
            self._metrics.ended("handed_back")
            delivery.nak(max(NEWER_S, pause_s(delivery.attempt)))
            return
        except FrameError as error:
            log.error("a message of the queue is dropped: %s", error)
            self.slices.refuse(delivery, pull, "refused")
            return
        if head.resource_pool != self.assignments.pool:
            self._metrics.ended("handed_back")
            delivery.nak()  # its pull is being closed
            return
        if (why := self._unwanted(head.reply)) is not None:
            self.slices.refuse(delivery, pull, why)
            return
        if head.model not in self.link.vitals.models:
            self._heartbeat.soon()  # it will be loaded here
        self.slices.take(head, delivery, pull)

    def _unwanted(self, reply: str) -> str | None:
        """Say why nobody waits for a result, where that is so."""
        if reply in self._cancelled:
            return "cancelled"
        return "gateway_lost" if self._gateways.is_silent(reply) else None

    def adapter_answered(self, number: int, frame: bytes) -> None:
        """Take the result of a slice."""
        self.slices.answered(number, frame)

    def adapter_loads(self, number: int, *, waits: bool) -> None:
        """Let a slice that waits for a load hold up no other."""
        self.slices.waits_for_load(number, waits=waits)

    def adapter_queued(self, received: int, batches: float) -> None:
        """Send more, as far as there is room."""
        self.slices.dispatch.queued(received, batches)

    def adapter_configured(self) -> None:
        """Send what waited for these configs."""
        self.slices.configured()
        self._heartbeat.soon()

    def _cancel(self, message: Message) -> None:
        reply = message.payload.decode("utf-8", "replace")
        if not self.is_inbox(reply):
            log.warning("a request that is cancelled has no inbox of a gateway: %r", reply[:200])
            return
        self._cancelled.add(reply)
        self.slices.cancel(lambda each: each == reply, "cancelled")

    def _fell_silent(self, inbox: str) -> None:
        self.slices.cancel(lambda reply: inbox_of(reply) == inbox, "gateway_lost")

    async def _mark(self) -> None:
        while True:
            await asyncio.sleep(self._settings.ack_wait_s / 3)
            self.slices.mark()


def _gpus(settings: ClusterSettings, detected: str | None) -> tuple[str | None, int]:
    """Say which GPUs a machine has, and how many it advertises."""
    kind = settings.gpu_type or detected
    told = kind or settings.machine_profile
    return kind and kind.lower(), (1 if told else 0) if settings.gpu_count is None else settings.gpu_count
