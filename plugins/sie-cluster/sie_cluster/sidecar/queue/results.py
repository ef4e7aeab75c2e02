"""Sends results to gateways. One that is larger than a message is offered again and again until it was fetched."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from sie_cluster.messages.errors import error_to_map
from sie_cluster.messages.frames import encode
from sie_cluster.messages.work import ResultHead, WorkHead, encode_result
from sie_cluster.queue.payloads.holding import Holder
from sie_cluster.sidecar.held import Slice
from sie_core.concurrency.tasks import Tasks, supervised, within
from sie_core.contracts import InferenceError, QueueError, QueueTransport

MOST_OFFERED_S = 120.0
"""How long a result waits at most to be fetched."""
OFFER_AGAIN_S = 2.0
"""Between two offers: an inbox loses what comes while its gateway is not connected, and a fetch may fail."""
AGAIN_S = 0.1
"""Between attempts to send a result while the broker is away."""

NO_ROOM = InferenceError("RESOURCE_EXHAUSTED", "The worker has no room for so large a result just now; retry.")
log = logging.getLogger(__name__)


class Results:
    """Those that wait for the broker, or to be fetched.

    Args:
        transport: Open.
        holder: Offers those that are larger than a message.
        is_wanted: Whether somebody still waits for the result of a slice.
        drop: Acknowledges a slice, which is held no more: its result was sent or fetched, or cannot be.
    """

    def __init__(
        self,
        transport: QueueTransport,
        holder: Holder,
        is_wanted: Callable[[Slice], bool],
        drop: Callable[[Slice], None],
    ) -> None:
        self._transport, self._holder, self._is_wanted, self._drop = transport, holder, is_wanted, drop
        self._waiting: asyncio.Queue[tuple[Slice, bytes]] = asyncio.Queue()
        self._offered: dict[int, asyncio.Event] = {}
        """Set once a slice is held no more, by its number."""
        self._tasks = Tasks()
        self._tasks.start(supervised("sending results", self._send_all))

    def send(self, held: Slice, frame: bytes) -> None:
        """Send the result of a slice, behind those before it; while the broker is away it is kept."""
        self._waiting.put_nowait((held, frame))

    def withdraw(self, held: Slice) -> None:
        """Offer the result of a slice no more."""
        if held.offer is not None:
            self._holder.withdraw(held.offer)
        if (gone := self._offered.get(held.number)) is not None:
            gone.set()

    async def close(self) -> None:
        """Send and offer no more."""
        self._tasks.cancel()
        await self._holder.close()

    async def _send_all(self) -> None:
        while True:
            held, frame = await self._waiting.get()
            if len(frame) > self._transport.max_payload:
                self._tasks.start(self._offer(held, frame))
            else:
                await self._send(held, frame)
                self._drop(held)

    async def _send(self, held: Slice, frame: bytes) -> None:
        """Send a result, however long the broker is away."""
        while True:
            try:
                await self._transport.send(held.head.reply, frame)
            except QueueError as error:
                if error.failure == "UNAVAILABLE":
                    await asyncio.sleep(AGAIN_S)
                    continue
                log.error("the result of %s cannot be sent: %s", held.head.id, error)
            return

    async def _offer(self, held: Slice, frame: bytes) -> None:
        """Say where a result can be fetched until it was, or nobody wants it."""
        try:
            offer = held.offer = await self._holder.offer(frame, on_fetched=lambda: self._drop(held))
        except QueueError as error:
            log.error("a result of %d bytes cannot be sent: %s", len(frame), error)
            self.send(held, failure(held.head, NO_ROOM))
            return
        del frame  # it may lie in the store now
        told = encode({"offer": offer.to_map()})
        left_s = MOST_OFFERED_S if held.head.left_s is None else min(MOST_OFFERED_S, held.head.left_s)
        gone = self._offered[held.number] = asyncio.Event()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    while self._is_wanted(held) and not gone.is_set():
                        await self._tell(held.head.reply, told, gone)
        finally:
            del self._offered[held.number]
            self._holder.withdraw(offer)
        self._drop(held)

    async def _tell(self, reply: str, offer: bytes, gone: asyncio.Event) -> None:
        try:
            await self._transport.send(reply, offer)
            pause_s = OFFER_AGAIN_S
        except QueueError:
            pause_s = AGAIN_S
        await within(gone.wait(), pause_s)


def word(head: WorkHead, code: str) -> bytes:
    """Write the result of a slice that its gateway decides about."""
    return encode_result(ResultHead(head.request_id, head.slice, head.attempt, 0, error={"code": code}))


def failure(head: WorkHead, error: InferenceError) -> bytes:
    """Write the result of a slice that failed here."""
    return encode_result(ResultHead(head.request_id, head.slice, head.attempt, 0, error=error_to_map(error)))
