"""The workers that a gateway or a sidecar hears of, and what they say of themselves."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from sie_cluster.messages.frames import FrameError
from sie_cluster.messages.health import Beat, WorkerReport, decode_beat
from sie_cluster.messages.status import decode_status
from sie_cluster.queue.subjects import EVERY_HEALTH, HEALTH_WANTED, health_subject
from sie_core.concurrency.tasks import Tasks
from sie_core.contracts import Message, ModelInfo, QueueError, QueueTransport

MISSED_BEATS = 3

log = logging.getLogger(__name__)

OnHeard = Callable[["WorkerReport | None", WorkerReport], None]
"""Takes what a worker said before, None where it was not known, and what it says now."""


@dataclass(frozen=True)
class Status:
    """What the adapter process of a worker says of itself."""

    worker: str
    id: int
    frame: bytes
    """Empty where the process is away, or was not heard yet."""

    @cached_property
    def models(self) -> dict[str, ModelInfo]:
        """Its models; read when somebody asks."""
        try:
            return {model.id: model for model in decode_status(self.frame).models} if self.frame else {}
        except FrameError as error:
            log.warning("the status of the worker %s cannot be read: %s", self.worker, error)
            return {}


@dataclass(frozen=True)
class Worker:
    """One of them, as it last said."""

    report: WorkerReport
    status: Status
    heard: float


class Workers:
    """All that were heard of lately; who misses three of its heartbeats is forgotten.

    Args:
        on_heard: Called with each heartbeat.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        on_heard: OnHeard = lambda before, now: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_heard, self._clock = on_heard, clock
        self._workers: dict[str, Worker] = {}
        self._transport: QueueTransport | None = None
        self._asking = Tasks()

    def __iter__(self) -> Iterator[Worker]:
        now = self._clock()
        self._workers = {name: worker for name, worker in self._workers.items() if not _is_late(worker, now)}
        return iter(self._workers.values())

    def reports(self) -> Mapping[str, WorkerReport]:
        """Give what each of them says, by its name."""
        return {worker.report.worker: worker.report for worker in self}

    async def hear(self, transport: QueueTransport, *, statuses: bool = False) -> None:
        """Hear of workers from now on, of those that are there at once.

        Args:
            transport: Open.
            statuses: Whether what their adapter processes say of themselves is wanted too.
        """
        self._transport = transport if statuses else None
        await transport.subscribe(EVERY_HEALTH, self.heard)
        await _ask(transport, "")

    def greet(self) -> None:
        """Take all of them to be heard just now."""
        now = self._clock()
        self._workers = {name: replace(worker, heard=now) for name, worker in self._workers.items()}

    def heard(self, message: Message) -> None:
        """Take a heartbeat."""
        try:
            beat = _read(message)
        except FrameError as error:
            log.warning("a heartbeat cannot be read: %s", error)
            return
        now, report = self._clock(), beat.report
        before = self._workers.get(report.worker)
        if before is not None and _is_late(before, now):
            before = None
        if beat.status is None and before is not None and before.status.id == beat.status_id:
            status = before.status
        else:
            status = Status(report.worker, beat.status_id, beat.status or b"")
        self._workers[report.worker] = Worker(report, status, now)
        if self._transport is not None and beat.status_id and not status.frame:
            self._asking.start(_ask(self._transport, report.worker))
        self._on_heard(None if before is None else before.report, report)

    def model(self, model: str) -> ModelInfo | None:
        """Return what is told of a model: by a worker that has it loaded, else by one that is at it, else by any."""
        told = [worker.status.models[model] for worker in self if model in worker.status.models]
        order = ("loaded", "loading", "unloading", "failed", "available")
        return min(told, key=lambda info: order.index(info.state), default=None)


def comes_up(before: WorkerReport | None, now: WorkerReport) -> bool:
    """Whether a worker takes work that did not."""
    return now.up and (before is None or not before.up)


async def _ask(transport: QueueTransport, worker: str) -> None:
    """Ask every worker for a heartbeat, or one for its status; it is no loss where nobody can be asked."""
    with suppress(QueueError):
        await transport.send(HEALTH_WANTED, worker.encode())


def _read(message: Message) -> Beat:
    """Read a heartbeat, which must come by its worker's own subject."""
    beat = decode_beat(message.payload)
    name = beat.report.worker
    if message.subject != health_subject(name):
        raise FrameError(f"{name[:100]!r} does not belong to the subject {message.subject[:100]!r}")
    return beat


def _is_late(worker: Worker, now: float) -> bool:
    return now - worker.heard > MISSED_BEATS * worker.report.beat_s
