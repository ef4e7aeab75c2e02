"""Fetches slices that are larger than a message from the gateways that hold them, bounded in bytes."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol, cast

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


class Owner(Protocol):
    """Who holds the slices."""

    def is_inbox(self, subject: str) -> bool:
        """Whether a subject is the inbox of a gateway."""
        ...

    def fetched(self, held: Slice) -> None:
        """Take a slice that is there; its frame is set."""
        ...

    def not_fetched(self, held: Slice, problem: QueueError | FrameError) -> None:
        """Take one that cannot be fetched, or is not what was announced."""
        ...


class LargeSlices:
    """Those that are being fetched, and those that wait for the adapter process.

    Args:
        fetcher: Fetches.
        owner: Holds the slices.
        most_bytes: Of slices that are being fetched, or were and wait for the adapter process; the others wait at their
            gateways.
    """

    def __init__(self, fetcher: Fetcher, owner: Owner, most_bytes: int) -> None:
        self._fetcher, self._owner = fetcher, owner
        self._room = Room(most_bytes)
        self._fetching: dict[int, asyncio.Task[None]] = {}

    @property
    def held_bytes(self) -> int:
        """Bytes of all of them."""
        return self._room.held_bytes

    def fetch(self, held: Slice) -> None:
        """Fetch a slice once there is room for it."""
        self._fetching[held.number] = asyncio.create_task(self._fetch(held))

    def leave(self, held: Slice) -> None:
        """Hold a slice no more: the adapter process has it, or nobody waits for it."""
        if (task := self._fetching.pop(held.number, None)) is not None:
            task.cancel()
        self._room.leave(held)

    def close(self) -> None:
        """Fetch no more."""
        for task in self._fetching.values():
            task.cancel()

    async def _fetch(self, held: Slice) -> None:
        problem: QueueError | FrameError | None = None
        try:
            held.frame = await self._fetched(held)
        except (QueueError, FrameError) as error:
            problem = error
        except Exception as error:  # such as no memory for it
            log.exception("the slice %s could not be fetched", held.head.id)
            problem = QueueError("UNAVAILABLE", f"it could not be fetched ({type(error).__name__})")
        del self._fetching[held.number]
        if problem is None:
            self._owner.fetched(held)
        else:
            self._owner.not_fetched(held, problem)

    async def _fetched(self, held: Slice) -> bytes:
        offer = Offer.from_map(held.head.offer, MOST_SLICE_BYTES)
        if not self._owner.is_inbox(offer.subject):
            raise FrameError(f"{offer.subject[:200]!r} is no inbox of a gateway")
        await self._room.enter(held, offer.bytes)
        frame = cast("bytes", await self._fetcher.fetch(offer))  # a view is read as bytes are, and not copied
        if read_work_head(frame).id != held.head.id:
            raise FrameError("what was fetched is another slice")
        return frame
