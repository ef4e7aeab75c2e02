"""One request on its way: its slices, their attempts and their results."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from sie_cluster.gateway.flights.slicing import Packed, cut
from sie_cluster.messages.errors import GIVEN_TOO_OFTEN, WORKER_LOST, error_from_map
from sie_cluster.messages.frames import Pieces
from sie_cluster.messages.work import ResultHead, WorkHead, work_key, work_pieces
from sie_cluster.queue.payloads.offers import Offer
from sie_core.contracts import InferenceError, QueueError
from sie_core.logs import current_request

MOST_QUEUED = 16
"""Slices of one request in the queue at a time: a request of thousands of items delays nobody by more."""
MOST_LOST = 2
"""Adapter processes that may end while a slice is at work, before it is taken for the cause."""
MOST_ATTEMPTS = 6
GRACE_S = 0.05
"""The API's own timer comes first where the client named the deadline, and says so."""

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Part:
    """A slice, its attempts so far, and its result."""

    head: WorkHead
    span: range
    sent_at: float = 0.0
    sequence: int | None = None
    """Where the last attempt is stored; None until the broker has said so."""
    offer: Offer | None = None
    """Where it can be fetched, if it is larger than a message."""
    looked_at: float = 0.0
    """When its message was last looked up."""
    missed_at: float | None = None
    """When its message was first found to be gone while there is no result."""
    lost: int = 0
    result: ResultHead | None = None
    items: list[bytes] | None = None
    result_bytes: int = 0


class Publisher(Protocol):
    """What a flight travels by."""

    async def publish(self, flight: Flight, part: Part, payload: Pieces) -> None:
        """Hand a slice to the queue; `Flight.stored` takes where it is."""
        ...

    def bury(self, flight: Flight, part: Part, why: str) -> None:
        """Keep a slice for the operator: it is refused for what it does to workers."""
        ...

    def cancel(self, flight: Flight) -> None:
        """Have the slices that are on their way not run."""
        ...


class Flight:
    """A request between its publication and its last result. Used on the event loop.

    Args:
        packed: The request.
        reply: The subject its results come to.
        left_s: Seconds until nobody wants the answer.
        most_bytes: Of a slice.
        trace: The `traceparent` of the request.
        publisher: Carries the slices.
    """

    def __init__(
        self, packed: Packed, reply: str, left_s: float, most_bytes: int, trace: str | None, publisher: Publisher
    ) -> None:
        self.packed, self.reply, to = packed, reply, packed.to
        self.until = time.monotonic() + left_s
        self._publisher = publisher
        fields = current_request.get()
        self._traced = None if fields is None else fields.trace
        self._error: InferenceError | None = None
        self._news = asyncio.Event()
        """Set when a slice is answered, is to be sent again, or fails."""
        self._to_send: list[Part] = []
        self._next = 0
        self._queued = 0
        self.result_bytes = 0
        """Of its results so far; its owner counts them."""
        self.last: ResultHead | None = None
        """The head of the result that came last."""
        spans = list(cut(packed.items, max(1, most_bytes - len(packed.shared) - len(packed.query))))
        key = work_key(to.model.id, packed.operation, packed.shared)
        self.parts = [
            Part(
                WorkHead(
                    request_id=packed.request_id,
                    slice=number,
                    slices=len(spans),
                    attempt=1,
                    operation=packed.operation,
                    model=to.model.id,
                    key=key,
                    first=span.start,
                    items=len(span),
                    cost=sum(len(packed.items[place]) for place in span),
                    reply=reply,
                    client=packed.client,
                    priority=packed.priority,
                    trace=trace,
                    config_epoch=to.config_epoch,
                    lora=to.lora,
                    resource_pool=to.resource_pool,
                    profile=to.profile,
                ),
                span,
            )
            for number, span in enumerate(spans)
        ]
        self._missing = len(self.parts)

    async def run(self) -> None:
        """Send the slices and wait for their results.

        Raises:
            InferenceError: The first failure; the other slices are cancelled.
        """
        left_s = self.until - time.monotonic() + GRACE_S
        timer = asyncio.get_running_loop().call_later(left_s, self._too_late)
        try:
            while self._missing and self._error is None:
                self._news.clear()
                await self._send_more()
                if self._missing and self._error is None:
                    await self._news.wait()
            if self._error is not None:
                raise self._error
        except BaseException:
            self._publisher.cancel(self)
            raise
        finally:
            timer.cancel()
            self._error = None  # it and this frame would hold each other

    def on_the_way(self) -> list[Part]:
        """List the slices that were sent and are not answered."""
        return [part for part in self.parts[: self._next] if part.result is None]

    def answered(self, result: ResultHead, items: list[bytes], size: int) -> bool:
        """Take a result of `size` bytes; False if there was one, or it is of no slice and attempt that was sent."""
        if result.request_id != self.packed.request_id or not 0 <= result.slice < self._next:
            return False
        part = self.parts[result.slice]
        if not 1 <= result.attempt <= part.head.attempt:
            return False
        if part.result is not None or (result.error is None and result.items != len(part.span)):
            return False
        if result.error is not None:
            return self._failed(part, result)
        part.result, part.items, part.result_bytes = result, items, size
        self.result_bytes += size
        self.last = result
        self._missing -= 1
        self._queued -= 1
        if not self._missing:
            self._compute_by_one_config()
        self._news.set()
        return True

    def _compute_by_one_config(self) -> None:
        """Have slices computed again by the config that most were: it was changed meanwhile, or not everywhere yet."""
        configs = Counter(part.result.config for part in self.parts if part.result is not None)
        if len(configs) == 1:
            return
        ((chosen, _),) = configs.most_common(1)
        for part in self.parts:
            if part.result is not None and part.result.config != chosen:
                part.result = part.items = None
                self.result_bytes -= part.result_bytes
                self._missing += 1
                self._queued += 1
                self.try_again(part)

    def stored(self, part: Part, attempt: int, outcome: int | QueueError) -> None:
        """Take where an attempt is stored, or why it is not."""
        if part.result is not None or attempt != part.head.attempt:
            return
        if isinstance(outcome, QueueError):
            self.fail(queue_error(outcome))
        else:
            part.sequence = outcome

    def try_again(self, part: Part, *, alone: bool = False) -> None:
        """Send a slice once more: its result was lost, or who was at it."""
        if part.head.attempt >= MOST_ATTEMPTS:
            told = f"{MOST_ATTEMPTS} attempts at this request were lost, or met another config of its model; retry."
            self.fail(InferenceError("QUEUE_UNAVAILABLE", told))
            return
        part.head = part.head._replace(attempt=part.head.attempt + 1, alone=part.head.alone or alone)
        part.sequence = part.missed_at = None
        if self._traced is not None:
            self._traced.event("slice again", time.monotonic(), slice=part.head.slice, attempt=part.head.attempt)
        self._to_send.append(part)
        self._news.set()

    def fail(self, error: InferenceError) -> None:
        """End the request; the first error counts."""
        if self._error is None and self._missing:
            self._error = error
            self._news.set()

    def _failed(self, part: Part, result: ResultHead) -> bool:
        assert result.error is not None
        if result.error.get("code") == GIVEN_TOO_OFTEN:
            self._refuse(part, "Workers were given this request again and again, and none answered it.")
            return True
        if result.error.get("code") != WORKER_LOST:
            self.fail(error_from_map(result.error, part.span.start))
            return True
        part.lost += 1
        if part.lost >= MOST_LOST:
            told = "A worker ended while it was at work on this request, and so did the next one, which had no other."
            self._refuse(part, told)
        elif result.attempt == part.head.attempt:
            self.try_again(part, alone=True)
        return True

    def _refuse(self, part: Part, why: str) -> None:
        log.error("%s is refused and kept as a dead letter: %s", part.head.id, why)
        self._publisher.bury(self, part, why)
        self.fail(InferenceError("INTERNAL_ERROR", why))

    def _may_send(self) -> bool:
        return bool(self._to_send) or (self._next < len(self.parts) and self._queued < MOST_QUEUED)

    async def _send_more(self) -> None:
        while self._may_send() and self._error is None:
            if self._to_send:
                await self._send(self._to_send.pop())
                continue
            part = self.parts[self._next]
            self._next += 1
            self._queued += 1
            await self._send(part)

    async def _send(self, part: Part) -> None:
        part.sent_at = time.monotonic()
        try:
            await self._publisher.publish(self, part, self.pack(part, max(0.0, self.until - part.sent_at)))
        except QueueError as error:
            self.fail(queue_error(error))

    def pack(self, part: Part, left_s: float) -> Pieces:
        """Write a slice, of which the answer is wanted for so many seconds."""
        packed = self.packed
        items = packed.items[part.span.start : part.span.stop]
        return work_pieces(part.head, packed.shared, items, packed.query, left_s)

    def _too_late(self) -> None:
        self.fail(InferenceError("DEADLINE_EXCEEDED", "The request's deadline passed before its answer was there."))


def queue_error(error: QueueError) -> InferenceError:
    """Tell a client why the queue did not take its request; addresses and settings are for the log."""
    log.warning("the queue: %s", error)
    if error.failure == "FULL":
        return InferenceError("QUEUE_FULL", "The queue is full; retry shortly.")
    if error.failure == "TOO_LARGE":
        return InferenceError("PAYLOAD_TOO_LARGE", "An item is larger than the queue takes; send it smaller.")
    return InferenceError("QUEUE_UNAVAILABLE", "The queue to the workers cannot be reached; retry shortly.")


def unreadable() -> InferenceError:
    """Tell a client that a result could not be read; the log says why."""
    return InferenceError("INTERNAL_ERROR", "What a worker answered could not be read; the gateway's log says why.")
