"""Fetches payloads that others offer: from the payload store, or from who holds them, some frames at a time."""

from __future__ import annotations

import asyncio
import logging
import secrets
from dataclasses import dataclass, field

from sie_cluster.messages.frames import FrameError, decode, room_for
from sie_cluster.queue.payloads.offers import FRAME_BYTES, Offer
from sie_cluster.queue.payloads.store import PayloadStore
from sie_core.concurrency.pacing import PACING
from sie_core.contracts import Message, QueueError, QueueTransport, Subscription

WINDOW = 4
"""Frames on their way to this process at a time, over all payloads: what they may add to what a broker holds for it,
which cuts off a client that leaves too much unread, and to how long a small message waits behind them."""
FRAME_WAIT_S = 5.0
TRIES = 3

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Fetch:
    """One payload on its way."""

    size: int
    payload: memoryview
    holder: str
    """The inbox of who holds it."""
    waiting: dict[int, asyncio.Future[None]] = field(default_factory=dict)
    gone: bool = False
    lost: bool = False
    """Whether its holder left frames of this or another payload unanswered."""


class Fetcher:
    """Fetches payloads for one process. Used on the event loop.

    Args:
        transport: Open.
        store: Where those lie that have a key.
        frame_wait_s: How long a frame may take before it is asked for again.
    """

    def __init__(
        self, transport: QueueTransport, store: PayloadStore | None = None, frame_wait_s: float = FRAME_WAIT_S
    ) -> None:
        self._transport, self._store, self._frame_wait_s = transport, store, frame_wait_s
        self._window = asyncio.Semaphore(WINDOW)
        self._inbox: Subscription | None = None
        self._fetches: dict[str, _Fetch] = {}

    async def fetch(self, offer: Offer) -> bytes | memoryview:
        """Fetch a payload, and tell who offers it.

        Raises:
            QueueError: `NOT_FOUND`: it is on offer no more. `UNAVAILABLE`: who offered it, or the store, does not
                answer. `CONFIG`: it lies in a store, and this process has none.
        """
        payload: bytes | memoryview
        if offer.key is None:
            payload = await self._in_frames(offer)
        elif self._store is None:
            told = "A payload lies in a store, and this process has none: set SIE_PAYLOAD_STORE_URL for it too."
            raise QueueError("CONFIG", told)
        else:
            payload = await self._store.read(offer.key, offer.bytes)
        try:
            await self._transport.send(offer.subject, b"")
        except QueueError as error:
            log.warning("a payload is here, and its sender could not be told: %s", error)
        return payload

    async def _in_frames(self, offer: Offer) -> memoryview:
        if self._inbox is None:
            self._inbox = await self._transport.inbox(self._came)
        name = secrets.token_hex(8)  # who holds one payload is told the inbox, and cannot guess where others come
        fetch = self._fetches[name] = _Fetch(offer.bytes, room_for(offer.bytes), offer.subject.rpartition(".")[0])
        reply = f"{self._inbox.subject}.{name}"
        try:
            async with asyncio.TaskGroup() as frames:
                for start in range(0, offer.bytes, FRAME_BYTES):
                    frames.create_task(self._frame(fetch, offer.subject, start, reply))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            del self._fetches[name]
        if fetch.gone:
            raise QueueError("NOT_FOUND", "The payload is on offer no more.")
        return fetch.payload

    async def _frame(self, fetch: _Fetch, subject: str, start: int, reply: str) -> None:
        async with self._window:
            for _ in range(TRIES):
                if fetch.gone:
                    return
                if fetch.lost:
                    break
                await PACING.turn(min(FRAME_BYTES, fetch.size - start))
                came = fetch.waiting[start] = asyncio.get_running_loop().create_future()
                await self._transport.send(subject, start.to_bytes(8, "big"), reply)
                done, _ = await asyncio.wait((came,), timeout=self._frame_wait_s)
                if done:
                    return
            # The window is not for one payload after the other of a process that has ended.
            for other in self._fetches.values():
                other.lost = other.lost or other.holder == fetch.holder
        raise QueueError("UNAVAILABLE", f"A payload of {fetch.size} bytes did not come: its holder does not answer.")

    def _came(self, message: Message) -> None:
        """Take a frame; one that nobody waits for, or that is not what was asked for, is dropped."""
        fetch = self._fetches.get(message.subject.rpartition(".")[2])
        if fetch is None:
            return
        try:
            head, (part,) = decode(message.payload)
        except (FrameError, ValueError):
            return
        start = head.get("start")
        if not isinstance(start, int) or (waiting := fetch.waiting.get(start)) is None or waiting.done():
            return
        if head.get("gone"):
            fetch.gone = True
        elif len(part) != min(FRAME_BYTES, fetch.size - start):
            return
        else:
            fetch.payload[start : start + len(part)] = part
        waiting.set_result(None)
