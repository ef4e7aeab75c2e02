"""The slices of a sidecar, from the queue to the adapter process, and until their results are sent."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Protocol

from sie_cluster.messages.errors import GIVEN_TOO_OFTEN, WORKER_LOST
from sie_cluster.messages.frames import FrameError
from sie_cluster.messages.work import WorkHead
from sie_cluster.programs.memory import sidecar_bytes
from sie_cluster.queue.payloads.fetching import Fetcher
from sie_cluster.queue.payloads.holding import Holder
from sie_cluster.queue.payloads.store import PayloadStore
from sie_cluster.settings import ClusterSettings
from sie_cluster.sidecar.adapter.dispatching import Dispatch
from sie_cluster.sidecar.adapter.link import Link
from sie_cluster.sidecar.held import Slice, pause_s
from sie_cluster.sidecar.load import Load, most_cost
from sie_cluster.sidecar.metrics import SidecarMetrics
from sie_cluster.sidecar.queue.credit import Credit
from sie_cluster.sidecar.queue.large_slices import LargeSlices
from sie_cluster.sidecar.queue.results import Results, failure, word
from sie_core.concurrency.pacing import PACING
from sie_core.contracts import Delivery, InferenceError, Pull, QueueError, QueueTransport, Tracer

OFFERED_PART, FETCHED_PART = 1 / 2, 1 / 4
"""Parts of a sidecar's memory for results larger than a message that wait to be fetched, and for such slices."""
MOST_FETCHES = 6
"""The delivery of a slice, for whatever reason it came again, from which on it is not given back where it cannot be
fetched: its client is told to retry, after 7.5 s in pauses where every delivery failed."""
CONFIG_S = 2.0
"""What a change of a config takes at most to reach every worker, while all is well; then another takes the slice."""

log = logging.getLogger(__name__)


class Host(Protocol):
    """The sidecar that slices belong to."""

    link: Link
    """The adapter process."""

    def is_inbox(self, subject: str) -> bool:
        """Whether a subject is the inbox of a gateway."""
        ...

    def is_wanted(self, reply: str) -> bool:
        """Whether somebody may wait for the result that a reply takes."""
        ...


class Slices:
    """All that are held: taken, fetched where they are offered, sent to the adapter process in turn, answered, and
    acknowledged or handed back.

    Args:
        transport: Open.
        settings: The settings in force.
        metrics: Counts.
        host: Whose they are.
        store: Where payloads larger than a message go.
        on_saturated: Called when about as much is held as is taken at a time, or is no more.
        on_lack: Called when work comes for a config that the adapter process does not have yet.
        tracer: Records the traces that gateways began; None records none.
    """

    def __init__(
        self,
        transport: QueueTransport,
        settings: ClusterSettings,
        metrics: SidecarMetrics,
        host: Host,
        store: PayloadStore | None,
        on_saturated: Callable[[], None],
        on_lack: Callable[[], None],
        tracer: Tracer | None = None,
    ) -> None:
        self._on_lack, self._tracer = on_lack, tracer
        self._settings, self._metrics, self._host = settings, metrics, host
        self._held: dict[int, Slice] = {}
        """By number."""
        self._numbers = count(1)
        self._idle = asyncio.Event()
        self._idle.set()
        holder = Holder(transport, int(sidecar_bytes(settings) * OFFERED_PART), store)
        self._results = Results(transport, holder, self.is_wanted, self.drop)
        self.credit = Credit(settings, asyncio.get_running_loop().call_later)
        self.load = Load(most_cost(settings), on_saturated)
        self._large = LargeSlices(Fetcher(transport, store), int(sidecar_bytes(settings) * FETCHED_PART))
        self._most_fetches = min(MOST_FETCHES, settings.max_deliver - 1)
        self._preparing: dict[int, asyncio.Task[None]] = {}
        """By number the slices that are not here yet, or their configs."""
        self._configured = asyncio.Event()
        """Set with the next change of the adapter process's configs, and then another one."""
        self.dispatch = Dispatch(settings, self._send)

    def __len__(self) -> int:
        return len(self._held)

    def take(self, head: WorkHead, delivery: Delivery, pull: Pull) -> None:
        """Hold a slice that was delivered, and have it answered."""
        if delivery.attempt > 1 and self._is_held(head, delivery, pull):
            return
        self._idle.clear()
        frame = delivery.payload if head.offer is None else b""
        held = Slice(next(self._numbers), head, delivery, pull, frame)
        self._held[held.number] = held
        if self._tracer is not None and head.trace is not None:
            name, parent = f"sidecar {head.operation}", {"traceparent": head.trace}
            held.trace = self._tracer.begin(name, held.since, parent, queued=True)[1]
        self.credit.take(pull, head.cost)
        self.load.take(head)
        if delivery.attempt >= self._settings.max_deliver:
            log.error("%s was given to workers %d times; it is refused", head.id, delivery.attempt)
            self.finish(held, word(head, GIVEN_TOO_OFTEN), "refused")
        elif held.frame and not self._lacks_config(head):
            self.dispatch.take(held)
        else:
            self._preparing[held.number] = asyncio.create_task(self._prepare(held))

    def refuse(self, delivery: Delivery, pull: Pull, how: str) -> None:
        """Acknowledge a delivery that is not to be answered, nor held."""
        self._metrics.ended(how)
        delivery.ack()
        self.credit.give(pull, idle=not self._held)

    def answered(self, number: int, frame: bytes) -> None:
        """Take the result of a slice."""
        held = self._held.get(number)
        if held is not None and not held.answered:
            self._metrics.items.inc(held.head.items)
            if held.head.offer is None:
                PACING.answered(len(held.delivery.payload) + len(frame))
            self.credit.quantum.answered(time.monotonic() - held.since)
            self.finish(held, frame, "answered")
            self.dispatch.ended(held)

    def waits_for_load(self, number: int, *, waits: bool) -> None:
        """Let a slice that waits for a load hold up no other: neither here nor at the broker."""
        held = self._held.get(number)
        if held is None or not held.sent or held.answered or held.loading == waits:
            return
        if held.trace is not None:
            held.trace.event("waits for a load" if waits else "loaded", time.monotonic())
        self._give_credit(held)
        self.dispatch.waits_for_load(held, waits=waits)

    def configured(self) -> None:
        """Take that the adapter process has other configs: slices may wait for them."""
        self._configured.set()
        self._configured = asyncio.Event()

    def lost(self) -> None:
        """Take that the adapter process has ended. What was at work runs alone next: it may have been the cause."""
        at_work = self._at_work()
        if at_work:
            log.warning("the adapter process ended while %d slices were at work", len(at_work))
        for held in at_work:
            self.finish(held, word(held.head, WORKER_LOST), "lost")
        self.dispatch.clear()

    def stood_still(self) -> None:
        """Take that the adapter process does not answer: others are given what it has, and it is not to begin it."""
        at_work = self._at_work()
        if at_work:
            log.warning("the adapter process does not answer: %d slices go back to the queue", len(at_work))
        self.hand_back(at_work, failed=True)
        for held in at_work:
            self._host.link.cancel(held.number)
            self.dispatch.ended(held)

    def cancel(self, is_gone: Callable[[str], bool], how: str) -> None:
        """Hold no slice that nobody waits for, as its reply tells."""
        for held in [held for held in self._held.values() if is_gone(held.head.reply)]:
            if held.answered:
                if held.offer is not None:
                    self.drop(held)
                continue
            self.drop(held, how)
            if held.sent:
                self._host.link.cancel(held.number)
                self.dispatch.ended(held)

    def hand_back_waiting(self, besides: str | None = None, *, failed: bool = False) -> None:
        """Hand back what was not begun, besides that of a resource pool."""
        waiting = [held for held in self._held.values() if not held.sent and not held.answered]
        self.hand_back([held for held in waiting if held.head.resource_pool != besides], failed=failed)

    def hand_back_all(self) -> int:
        """Hand back everything; return how many slices that were."""
        left = list(self._held.values())
        self.hand_back(left, failed=False)
        return len(left)

    def is_wanted(self, held: Slice) -> bool:
        """Whether somebody may wait for the result of a slice that is held still."""
        return held.number in self._held and self._host.is_wanted(held.head.reply)

    def finish(self, held: Slice, frame: bytes, how: str) -> None:
        """Send a result; the message is acknowledged behind it."""
        self._metrics.ended(how)
        self._uncount(held)
        held.answered, held.how = True, how
        if held.trace is not None:
            held.trace.event("answered", time.monotonic())
        self._results.send(held, frame)

    def drop(self, held: Slice, how: str | None = None) -> None:
        """Acknowledge a slice, counted as ended somehow, and hold it no more."""
        if how is not None:
            self._metrics.ended(how)
            held.how = how
        if self._held.pop(held.number, None) is not None:
            held.delivery.ack()
            self._let_go(held)

    def hand_back(self, slices: Sequence[Slice], *, failed: bool) -> None:
        """Give slices back to the queue: at once, or where something failed here after a pause that grows."""
        for held in slices:
            if self._held.pop(held.number, None) is not None:
                if not held.answered:
                    self._metrics.ended("handed_back")
                    held.how = "handed_back"
                held.delivery.nak(pause_s(held.delivery.attempt) if failed else 0.0)
                self._let_go(held)

    def mark(self) -> None:
        """Say of what is held that it is at work, so that nobody else is given it."""
        for held in self._held.values():
            held.delivery.in_progress()

    async def none_left(self) -> None:
        """Wait until nothing is held."""
        await self._idle.wait()

    async def end(self) -> None:
        """Offer results no more: nobody would fetch them."""
        for task in self._preparing.values():
            task.cancel()
        await self._results.close()

    async def _prepare(self, held: Slice) -> None:
        """Fetch a slice that is larger than a message, and wait for its config; then it takes its turn."""
        problem: QueueError | FrameError | None = None
        try:
            if not held.frame:
                held.frame = await self._large.fetch(held, self._host.is_inbox)
        except (QueueError, FrameError) as error:
            problem = error
        has_config = problem is None and await self._config_came(held.head)
        del self._preparing[held.number]
        if problem is not None:
            self._not_fetched(held, problem)
        elif has_config:
            self.dispatch.take(held)
        else:
            log.warning("%s needs a config that has not come; it goes back to the queue", held.head.id)
            self.hand_back([held], failed=True)

    def _lacks_config(self, head: WorkHead) -> bool:
        """Whether the adapter process has an older config than the gateway knew."""
        if head.config_epoch is None:
            return False
        there = self._host.link.configs.epoch
        return there is not None and head.config_epoch > there

    async def _config_came(self, head: WorkHead) -> bool:
        """Wait for a slice's config, where it is not there; False where it does not come in time."""
        if self._lacks_config(head):
            self._on_lack()
            with suppress(TimeoutError):
                async with asyncio.timeout(CONFIG_S):
                    while self._lacks_config(head):
                        await self._configured.wait()
        return not self._lacks_config(head)

    def _not_fetched(self, held: Slice, problem: QueueError | FrameError) -> None:
        """Give a slice back that could not be fetched, or refuse it."""
        if isinstance(problem, FrameError):
            log.error("the slice %s is dropped: %s", held.head.id, problem)
            self.drop(held, "refused")
            return
        log.warning("the slice %s could not be fetched: %s", held.head.id, problem)
        attempt = held.delivery.attempt
        if problem.failure == "CONFIG":
            told = "A worker cannot read what its gateway stored; its log says why."
            self.finish(held, failure(held.head, InferenceError("INTERNAL_ERROR", told)), "refused")
        elif problem.failure == "NOT_FOUND":
            self.drop(held)  # nobody waits for it, or its gateway sends it again
        elif attempt < self._most_fetches:
            self.hand_back([held], failed=True)
        else:
            told = f"A worker could not fetch what the gateway holds for it, at delivery {attempt}; retry."
            self.finish(held, failure(held.head, InferenceError("QUEUE_UNAVAILABLE", told)), "refused")

    def _at_work(self) -> list[Slice]:
        return [held for held in self._held.values() if held.sent and not held.answered]

    def _send(self, held: Slice) -> None:
        self._host.link.send(held.number, held.frame)
        if held.trace is not None:
            held.trace.event("sent", time.monotonic())
        held.frame = b""  # it may be large, and its result larger still
        self._large.leave(held)

    def _is_held(self, head: WorkHead, delivery: Delivery, pull: Pull) -> bool:
        """Whether a slice is held already: this process, or its adapter process, stood still beyond the ack wait."""
        held = next((held for held in self._held.values() if held.head.id == head.id), None)
        if held is None:
            return False
        if held.pull is pull:
            self.credit.give(pull, idle=False)
        else:
            self._give_credit(held)
            held.credited = False
            self.credit.take(pull, head.cost)
        held.delivery, held.pull = delivery, pull
        return True

    def _let_go(self, held: Slice) -> None:
        """Hold nothing of a slice that was removed from those held."""
        if held.trace is not None:
            how, head = held.how or "dropped", held.head
            facts: dict[str, Any] = {"slice": head.slice, "attempt": head.attempt, "delivery": held.delivery.attempt}
            error = None if how == "answered" else how
            held.trace.end(time.monotonic(), error, request_id=head.request_id, model=head.model, how=how, **facts)
        self._uncount(held)
        self.dispatch.remove(held)
        if (task := self._preparing.pop(held.number, None)) is not None:
            task.cancel()
        self._large.leave(held)
        self._results.withdraw(held)
        self._give_credit(held)
        if not self._held:
            self._idle.set()

    def _uncount(self, held: Slice) -> None:
        """Have a slice that waits no more for its answer count no more as load."""
        if not held.answered:
            self.load.leave(held.head)

    def _give_credit(self, held: Slice) -> None:
        if not held.credited:
            held.credited = True
            self.credit.give(held.pull, held.head.cost, idle=not self._held)
