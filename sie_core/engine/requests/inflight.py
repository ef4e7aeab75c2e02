"""Requests in flight, between admission and answer, and their units in the queue.

A request is settled once, by the first of: its answer, a failure, its deadline, a client that left. Every stage checks
`settled` before it works on it.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sie_core.concurrency.leases import Lease
from sie_core.concurrency.loop import call_soon
from sie_core.contracts import (
    DecodeRequest,
    InferenceError,
    InferenceReply,
    InferenceRequest,
    QueuedUnit,
    Task,
    Timing,
    TokenizeRequest,
    Unit,
)
from sie_core.engine.models.loaded import LoadedModel
from sie_core.logs import current_request

Answer = TypeVar("Answer")


class Pending(Generic[Answer]):
    """A request in flight. Created on the event loop; settled from any thread."""

    def __init__(
        self, request: InferenceRequest | TokenizeRequest | DecodeRequest, model: LoadedModel, lease: Lease
    ) -> None:
        self.request = request
        self.model = model
        # Released when the preparation has ended or is cancelled; a batch holds its own lease.
        self.lease = lease
        fields = current_request.get()
        self.trace = None if fields is None else fields.trace
        # Of what was not chosen to be recorded, too: the log names it.
        self.trace_id = None if fields is None else fields.trace_id
        self.settled = False
        # A copy of the error it was answered with: the original's traceback would keep this object alive.
        self.error: InferenceError | None = None
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Answer] = self._loop.create_future()
        self._lock = threading.Lock()

    def succeed(self, answer: Answer) -> None:
        """Answer with `answer`, unless it is settled already."""
        if self.settle():
            call_soon(self._loop, _resolve, self.future, answer, None)  # with the loop closed nobody waits

    def fail(self, error: InferenceError) -> None:
        """Answer with `error`, unless it is settled already."""
        if self.settle():
            self.error = InferenceError(error.code, error.message)
            call_soon(self._loop, _resolve, self.future, None, error)

    def settle(self) -> bool:
        """Mark it as settled without an answer: its client has gone. False if it was settled already."""
        with self._lock:
            was, self.settled = self.settled, True
        return not was

    def forget(self) -> None:
        """Drop the delivered answer: an exception and this object would otherwise form a reference cycle."""
        if self.future.done() and not self.future.cancelled():
            self.future.exception()  # looked at here, should a cancelled call not have
        self.future = self._loop.create_future()
        self.future.cancel()  # another thread may be about to set its result


def _resolve(future: asyncio.Future[Any], answer: Any, error: InferenceError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(answer)
    else:
        future.set_exception(error)


@dataclass(slots=True, eq=False)
class FlightUnit(QueuedUnit):
    """A queued unit."""

    request: Flight
    # Its position among the units of its item.
    index: int = field(kw_only=True)
    # The unit as the adapter made it. The queued unit's key includes the LoRA adapter.
    made: Unit = field(kw_only=True)
    # Time of queueing, set by its queue.
    enqueued_at: float = 0.0


class Flight(Pending[InferenceReply]):
    """An inference request on its way through the stages. Its times are `time.monotonic()` seconds."""

    request: InferenceRequest

    def __init__(
        self, request: InferenceRequest, model: LoadedModel, lease: Lease, task: Task, arrived: float, now: float
    ) -> None:
        super().__init__(request, model, lease)
        self.task = task
        self.client, self.priority, self.deadline = request.client, request.priority, request.deadline
        # Whether some of its units were queued, and the estimated cost of those still to be prepared.
        self.admitted, self.more_cost = False, 0
        self.arrived = arrived
        self.submitted = self.prepare_started = self.prepared = now
        self.first_run: float | None = None
        # Links to the batches it was in; filled where it is traced.
        self.batches: list[Any] = []
        self.last_run = now

    def ran(self, started: float, ended: float) -> None:
        """Record the times of a batch with units of this flight."""
        with self._lock:
            self.first_run = started if self.first_run is None else min(self.first_run, started)
            self.last_run = max(self.last_run, ended)

    def timing(self, now: float) -> Timing:
        """Return the time of each stage. They add up to the total, except for the wait for the model's load."""
        first_run = self.prepared if self.first_run is None else self.first_run
        queued = self.prepare_started - self.submitted + first_run - self.prepared
        return Timing(
            total_ms=1000 * (now - self.arrived),
            queue_ms=1000 * max(0.0, queued),
            tokenization_ms=1000 * (self.prepared - self.prepare_started),
            inference_ms=1000 * max(0.0, self.last_run - first_run),
            postprocessing_ms=1000 * max(0.0, now - self.last_run),
        )
