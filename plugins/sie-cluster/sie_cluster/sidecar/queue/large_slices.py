"""Fetches slices that are larger than a message from the gateways that hold them, bounded in bytes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import cast

from sie_cluster.messages.frames import FrameError
from sie_cluster.messages.work import read_work_head
from sie_cluster.queue.payloads.fetching import Fetcher
from sie_cluster.queue.payloads.offers import Offer
from sie_cluster.queue.payloads.room import Room
from sie_cluster.sidecar.held import Slice
from sie_core.contracts import QueueError

MOST_SLICE_BYTES = 256 << 20
"""Of one slice; a larger one is refused as unreadable."""

log = logging.getLogger(__name__)


class LargeSlices:
    """Those that are being fetched, and those that wait for the adapter process.

    Args:
        fetcher: Fetches.
        most_bytes: Of slices that are being fetched, or were and wait for the adapter process; the others wait at their
            gateways.
    """

    def __init__(self, fetcher: Fetcher, most_bytes: int) -> None:
        self._fetcher, self._room = fetcher, Room(most_bytes)

    @property
    def held_bytes(self) -> int:
        """Bytes of all of them."""
        return self._room.held_bytes

    async def fetch(self, held: Slice, is_inbox: Callable[[str], bool]) -> bytes:
        """Fetch a slice once there is room for it; it has that until it leaves.

        Args:
            held: It.
            is_inbox: Says whether a subject is the inbox of a gateway.

        Raises:
            QueueError: It cannot be fetched.
            FrameError: It is not what was announced.
        """
        offer = Offer.from_map(held.head.offer, MOST_SLICE_BYTES)
        if not is_inbox(offer.subject):
            raise FrameError(f"{offer.subject[:200]!r} is no inbox of a gateway")
        await self._room.enter(held, offer.bytes)
        try:
            frame = cast("bytes", await self._fetcher.fetch(offer))  # a view is read as bytes are, and not copied
        except QueueError:
            raise
        except Exception as error:  # such as no memory for it
            log.exception("the slice %s could not be fetched", held.head.id)
            raise QueueError("UNAVAILABLE", f"it could not be fetched ({type(error).__name__})") from None
        if read_work_head(frame).id != held.head.id:
            raise FrameError("what was fetched is another slice")
        return frame

    def leave(self, held: Slice) -> None:
        """Hold a slice no more: the adapter process has it, or nobody waits for it."""
        self._room.leave(held)
