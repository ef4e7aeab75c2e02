"""The payloads that this process offers: in the payload store, or held here until they were fetched in frames."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from sie_cluster.messages.frames import Pieces, cut_pieces, encode, encode_pieces, size_of
from sie_cluster.queue.payloads.offers import FRAME_BYTES, Offer
from sie_cluster.queue.payloads.store import PayloadStore
from sie_cluster.queue.subjects import is_inbox
from sie_core.concurrency.tasks import Tasks
from sie_core.contracts import Message, QueueError, QueueTransport, Subscription

MOST_STORED = 4 << 30
"""Bytes that one process may have in the store."""

CLOSE_S = 5.0

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Held:
    size: int
    payload: Pieces | None
    """None where it is in the store."""
    on_fetched: Callable[[], None] | None
    key: str | None = None


class Holder:
    """What one process offers, bounded in bytes. Used on the event loop.

    Args:
        transport: Open.
        most_bytes: Of the payloads held in this process's memory.
        store: Where they go instead.
    """

    def __init__(self, transport: QueueTransport, most_bytes: int, store: PayloadStore | None = None) -> None:
        self._transport, self._most, self._store = transport, most_bytes, store
        self._held: dict[str, _Held] = {}
        self._inbox: Subscription | None = None
        self._tasks = Tasks()

    @property
    def held_bytes(self) -> int:
        """Bytes of the payloads in this process's memory."""
        return sum(held.size for held in self._held.values() if held.payload is not None)

    @property
    def stored_bytes(self) -> int:
        """Bytes of those in the store."""
        return sum(held.size for held in self._held.values() if held.payload is None)

    async def offer(self, *payload: bytes | memoryview, on_fetched: Callable[[], None] | None = None) -> Offer:
        """Keep a payload until it is fetched or withdrawn.

        Args:
            payload: What is offered, in pieces.
            on_fetched: Called once the other side has said that it has all of it.

        Raises:
            QueueError: `FULL`: what is on offer leaves no room for it.
        """
        size = size_of(payload)
        if self.held_bytes + size > self._most or (self._store is not None and self.stored_bytes + size > MOST_STORED):
            held = self.held_bytes + self.stored_bytes
            raise QueueError("FULL", f"A payload of {size} bytes finds no room beside {held} on offer.")
        name = secrets.token_hex(16)
        held_here = self._held[name] = _Held(size, payload, on_fetched)
        try:
            if self._inbox is None:
                self._inbox = await self._transport.inbox(self._asked)
            if self._store is not None:
                await self._put(self._store, held_here, payload)
        except BaseException:
            self._forget(name)
            raise
        return Offer(f"{self._inbox.subject}.{name}", size, held_here.key)

    def withdraw(self, offer: Offer) -> None:
        """Keep a payload no more."""
        self._forget(offer.subject.rpartition(".")[2])

    async def close(self) -> None:
        """Withdraw everything. What a store that does not answer keeps is swept later."""
        for name in list(self._held):
            self._forget(name)
        await self._tasks.ended(CLOSE_S)

    async def _put(self, store: PayloadStore, held: _Held, payload: Pieces) -> None:
        """Have a payload in the store; what is cancelled while it is written is swept there."""
        key = secrets.token_hex(16)
        try:
            await store.write(key, payload)
        except QueueError as error:
            log.warning("a payload of %d bytes goes in frames: %s", held.size, error)
        else:
            held.key, held.payload = key, None

    def _forget(self, name: str) -> None:
        held = self._held.pop(name, None)
        if held is not None and held.key is not None and self._store is not None:
            self._tasks.start(self._store.remove(held.key))

    def _asked(self, message: Message) -> None:
        """Send the frame that is asked for; an empty question means that all has come."""
        name = message.subject.rpartition(".")[2]
        held = self._held.get(name)
        if not message.payload:
            if held is not None:
                self._forget(name)
                if held.on_fetched is not None:
                    held.on_fetched()
            return
        if self._inbox is None or not is_inbox(message.reply, self._inbox.subject):
            log.warning("a frame is asked for by what is no inbox: %r", message.reply[:200])
            return
        start = int.from_bytes(message.payload[:8], "big")
        if held is None or held.payload is None:
            frame = encode({"start": start, "gone": True}, (b"",))
        else:
            part = list(cut_pieces(held.payload, start, start + FRAME_BYTES))
            frame = b"".join(encode_pieces({"start": start}, (part,)))
        self._tasks.start(self._send(message.reply, frame))

    async def _send(self, reply: str, frame: bytes) -> None:
        try:
            await self._transport.send(reply, frame)
        except QueueError:
            # Asked for again by who waits for it.
            return
