"""Tells a sidecar how much is queued for the device, so that it sends as much as makes the next batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from sie_cluster.ipc.framing import FrameStream, Kind, pack_queued

REPORT_S, REPORTS_A_BATCH = 0.002, 4
"""How soon a sidecar is told what is queued, and by what part of a batch it has changed then."""


class Came(NamedTuple):
    """What a sidecar has sent since it connected."""

    slices: int = 0
    bytes: int = 0
    ended: int = 0
    """Of the slices."""


class QueuedReports:
    """What a sidecar is told, where it has changed by much.

    Args:
        queued: Tells how many batches are queued for the device, and whether nothing waits to be prepared for it.
        batch_bytes: Bytes of slices that make about a batch.
        stream: Gives a connection of the sidecar; None where there is none.
    """

    def __init__(
        self, queued: Callable[[], tuple[float, bool]], batch_bytes: int, stream: Callable[[], FrameStream | None]
    ) -> None:
        self._queued, self._batch_bytes, self._stream = queued, batch_bytes, stream
        self._came = Came()
        self._reported = Came()
        self._reported_batches = 0.0
        self._reporting: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Count anew: the sidecar is another, or is connected anew."""
        self._came, self._reported, self._reported_batches = Came(), Came(), 0.0

    def came(self, size: int) -> None:
        """Count a slice of so many bytes."""
        self._came = Came(self._came.slices + 1, self._came.bytes + size, self._came.ended)
        self.soon()

    def ended(self) -> None:
        """Count a slice that is answered."""
        self._came = self._came._replace(ended=self._came.ended + 1)
        self.soon()

    def soon(self) -> None:
        """Tell the sidecar before long what is queued."""
        if self._reporting is None:
            self._reporting = asyncio.get_running_loop().call_later(REPORT_S, self._report, self._came)

    def look(self) -> None:
        """Tell the sidecar before long what is queued, where that is no more what it was told."""
        if self._has_changed(self._queued()[0]):
            self.soon()

    def _has_changed(self, batches: float) -> bool:
        least = 1 / REPORTS_A_BATCH
        return abs(batches - self._reported_batches) >= least or (batches == 0 < self._reported_batches)

    def _report(self, came: Came) -> None:
        """Tell the sidecar.

        What is being prepared is not queued yet. Until nothing waits for that, the sidecar goes by the bytes of all
        that is not answered.

        Args:
            came: What had come a moment ago, and is queued by now if it does not wait to be prepared.
        """
        self._reporting = None
        batches, all_prepared = self._queued()
        slices = came.slices if all_prepared else max(self._reported.slices, self._came.ended)
        stream, least = self._stream(), 1 / REPORTS_A_BATCH
        many = slices > self._reported.slices and came.bytes - self._reported.bytes >= least * self._batch_bytes
        if stream is not None and (self._has_changed(batches) or many):
            self._reported, self._reported_batches = Came(slices, came.bytes), batches
            stream.send(Kind.QUEUED, slices, pack_queued(batches))
        if self._came.slices > slices:
            self.soon()
