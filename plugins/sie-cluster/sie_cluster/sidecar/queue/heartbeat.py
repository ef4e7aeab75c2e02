"""Tells peers of this worker: at once where something that they go by has changed, else from time to time."""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections.abc import Callable

from sie_cluster.messages.health import WorkerReport, encode_beat
from sie_cluster.queue.subjects import HEALTH_WANTED, health_subject
from sie_core.concurrency.tasks import within
from sie_core.contracts import Message, QueueError, QueueTransport

GAP_S = 0.1
"""Between two heartbeats at least: changes that come closer are told together. That work is not taken any more is told
at once."""
AGAIN_S = 1.0
"""Until one that could not be sent is tried again."""

log = logging.getLogger(__name__)


class Heartbeat:
    """That of one worker.

    Args:
        transport: Open.
        report: Gives what is told.
        status: Gives the status of the adapter process; empty while it is away.
    """

    def __init__(
        self, transport: QueueTransport, report: Callable[[], WorkerReport], status: Callable[[], bytes]
    ) -> None:
        self._transport, self._report, self._status = transport, report, status
        self._changed = asyncio.Event()
        self._wanted = self._status_wanted = False
        self._told_status, self._status_id, self._is_cut = b"", 0, False

    def soon(self) -> None:
        """Look whether something has changed that peers go by, and tell them."""
        self._changed.set()

    async def run(self) -> None:
        """Tell them again and again until cancelled."""
        await self._transport.subscribe(HEALTH_WANTED, self._want)
        told: object = None
        told_up, may_at, due_at = False, 0.0, 0.0
        while True:
            self._changed.clear()
            report, now = self._report(), time.monotonic()
            news, falls = report.news, told_up and not report.up
            if falls or now >= (may_at if self._wanted or news != told else due_at):
                is_told = await self._beat(report)
                told, told_up = (news, report.up) if is_told else (None, told_up)
                may_at, due_at = now + (GAP_S if is_told else AGAIN_S), now + report.beat_s
            at = may_at if self._wanted or news != told else due_at
            await within(self._changed.wait(), max(0.0, at - time.monotonic()))

    def _want(self, message: Message) -> None:
        """Take that a peer wants a heartbeat."""
        worker = message.payload.decode("utf-8", "replace")
        if worker in ("", self._report().worker):
            self._wanted = True
            self._status_wanted = self._status_wanted or bool(worker)
            self.soon()

    async def _beat(self, report: WorkerReport) -> bool:
        status = self._status()
        if status != self._told_status:
            self._told_status, self._status_wanted = status, True
            self._status_id = zlib.crc32(status) or 1 if status else 0
        section = status if status and self._status_wanted else None
        if await self._send(report, self._status_id, section):
            self._wanted = self._status_wanted = False
            return True
        return False

    async def _send(self, report: WorkerReport, status_id: int, status: bytes | None) -> bool:
        """Send a heartbeat; without the status where that is larger than a message."""
        try:
            await self._transport.send(health_subject(report.worker), encode_beat(report, status_id, status))
        except QueueError as error:
            if error.failure != "TOO_LARGE" or status is None:
                return False
            if not self._is_cut:
                log.warning("gateways are not told of this worker's models: %s", error)
            self._is_cut = True
            return await self._send(report, 0, None)
        return True
