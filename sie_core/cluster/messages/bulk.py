"""Payloads larger than a message: who holds one says so, and the other side fetches it in frames, some at a time."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sie_core.cluster.messages.frames import FrameError, decode, encode
from sie_core.contracts import Message, QueueError, QueueTransport, Subscription

FRAME_BYTES = 512 << 10
WINDOW = 4
"""Frames on their way at a time: what one payload may add to what the broker and a socket hold."""
FRAME_WAIT_S = 5.0
TRIES = 3


@dataclass(frozen=True, slots=True)
class Offer:
    """Where a payload can be fetched: what travels in its place."""

    subject: str
    bytes: int

    def to_map(self) -> dict[str, Any]:
        """Write it for a head."""
        return {"subject": self.subject, "bytes": self.bytes}

    @classmethod
    def from_map(cls, fields: Mapping[str, Any], most: int) -> Offer:
        """Read it.

        Raises:
            FrameError: It is no offer, or one of more than `most` bytes.
        """
        subject, size = fields.get("subject"), fields.get("bytes")
        if not isinstance(subject, str) or not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise FrameError("it is no offer of a payload")
        if size > most:
            raise FrameError(f"a payload of {size} bytes is beyond the {most} that this process takes")
        return cls(subject, size)


class BulkSender:
    """The payloads that this process offers, bounded in bytes."""

    def __init__(self, transport: QueueTransport, most_bytes: int) -> None:
        self._transport = transport
        self._most = most_bytes
        self._held: dict[str, tuple[bytes, Callable[[], None] | None]] = {}
        self._inbox: Subscription | None = None
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def held_bytes(self) -> int:
        """Bytes of the payloads on offer."""
        return sum(len(payload) for payload, _ in self._held.values())

    async def offer(self, payload: bytes, on_fetched: Callable[[], None] | None = None) -> Offer:
        """Hold a payload until it is fetched or withdrawn.

        Args:
            payload: What is offered.
            on_fetched: Called once the other side has said that it has all of it.

        Raises:
            QueueError: `FULL`: what is on offer already leaves no room for it.
        """
        if self.held_bytes + len(payload) > self._most:
            raise QueueError(
                "FULL", f"A payload of {len(payload)} bytes finds no room beside {self.held_bytes} on offer."
            )
        if self._inbox is None:
            self._inbox = await self._transport.inbox(self._asked)
        name = secrets.token_hex(16)
        self._held[name] = (payload, on_fetched)
        return Offer(f"{self._inbox.subject}.{name}", len(payload))

    def withdraw(self, offer: Offer) -> None:
        """Hold a payload no more."""
        self._held.pop(offer.subject.rpartition(".")[2], None)

    def _asked(self, message: Message) -> None:
        """Send the frame that is asked for; an empty question means that all has come."""
        name = message.subject.rpartition(".")[2]
        payload, on_fetched = self._held.get(name, (None, None))
        if payload is not None and not message.payload:
            del self._held[name]
            if on_fetched is not None:
                on_fetched()
            return
        start = int.from_bytes(message.payload[:8], "big")
        head = {"start": start} if payload is not None else {"start": start, "gone": True}
        part = b"" if payload is None else payload[start : start + FRAME_BYTES]
        task = asyncio.create_task(self._send(message.reply, encode(head, (part,))))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, reply: str, frame: bytes) -> None:
        try:
            await self._transport.send(reply, frame)
        except QueueError:
            # Asked for again by who waits for it.
            return


async def fetch(transport: QueueTransport, offer: Offer, wait_s: float = FRAME_WAIT_S) -> bytes:
    """Fetch a payload, a window of frames at a time; each is asked for again where it does not come.

    Raises:
        QueueError: `NOT_FOUND`: it is on offer no more. `UNAVAILABLE`: who offered it does not answer.
    """
    payload = bytearray(offer.bytes)
    waiting: dict[int, asyncio.Future[None]] = {}
    gone = False

    def came(message: Message) -> None:
        nonlocal gone
        try:
            head, (part,) = decode(message.payload)
        except (FrameError, ValueError):
            return
        start = head.get("start")
        if not isinstance(start, int) or start not in waiting or waiting[start].done():
            return
        if head.get("gone"):
            gone = True
        elif len(part) != min(FRAME_BYTES, offer.bytes - start):
            return
        else:
            payload[start : start + len(part)] = part
        waiting[start].set_result(None)

    async def frame(start: int) -> None:
        async with window:
            for _ in range(TRIES):
                if gone:
                    return
                waiting[start] = asyncio.get_running_loop().create_future()
                await transport.send(offer.subject, start.to_bytes(8, "big"), inbox.subject)
                done, _ = await asyncio.wait((waiting[start],), timeout=wait_s)
                if done:
                    return
        raise QueueError("UNAVAILABLE", f"A payload of {offer.bytes} bytes did not come: its holder does not answer.")

    window, inbox = asyncio.Semaphore(WINDOW), await transport.inbox(came)
    try:
        async with asyncio.TaskGroup() as group:
            for start in range(0, offer.bytes, FRAME_BYTES):
                group.create_task(frame(start))
    except BaseExceptionGroup as group_of_errors:
        raise group_of_errors.exceptions[0] from None
    finally:
        await inbox.close()
    if gone:
        raise QueueError("NOT_FOUND", "The payload is on offer no more.")
    await transport.send(offer.subject, b"")
    return bytes(payload)
