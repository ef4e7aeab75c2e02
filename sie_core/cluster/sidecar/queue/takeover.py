"""Sends the results of slices that another sidecar of the same adapter process had pulled, and ended."""

from __future__ import annotations

import logging
from collections.abc import Callable

from sie_core.cluster.messages.frames import FrameError, decode
from sie_core.cluster.sidecar.held import Recent
from sie_core.concurrency.tasks import Tasks
from sie_core.contracts import QueueError, QueueTransport

log = logging.getLogger(__name__)


class Takeover:
    """What this sidecar took over.

    Args:
        transport: Open.
        is_wanted: Whether a reply is that of a gateway which may still wait.
    """

    def __init__(self, transport: QueueTransport, is_wanted: Callable[[str], bool]) -> None:
        self._transport, self._is_wanted = transport, is_wanted
        self._answered = Recent()
        self._tasks = Tasks()

    def answered(self, slice_id: str) -> bool:
        """Whether the result of a slice was sent here before it was delivered here."""
        return slice_id in self._answered

    def take(self, payload: bytes) -> None:
        """Send a result; see `Kind.ORPHAN`."""
        try:
            head, (result,) = decode(payload)
            slice_id, reply = str(head["id"]), str(head["reply"])
        except (FrameError, KeyError, ValueError) as error:
            log.error("a result of another sidecar's slice cannot be read: %s", error)
            return
        # One that is larger than a message is offered once its slice is delivered again.
        if len(result) <= self._transport.max_payload and self._is_wanted(reply):
            self._tasks.start(self._send(slice_id, reply, bytes(result)))

    async def _send(self, slice_id: str, reply: str, result: bytes) -> None:
        try:
            await self._transport.send(reply, result)
        except QueueError as error:
            log.warning("the result of %s waits until it is delivered again: %s", slice_id, error)
            return
        self._answered.add(slice_id)
