"""Whose work runs next on a device, and whose is refused.

Models share the device by start-time fair queueing (P. Goyal, H. M. Vin and H. Cheng, "Start-time Fair Queueing", ACM
SIGCOMM 1996) over predicted seconds; the clients of a model share it as `ModelQueue` says. A request is refused when it
comes, or never: where its answer is predicted to come after its deadline, or the queue is full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import Final

from sie_core.batching.booking import Booking
from sie_core.batching.queue import COST, Fits, ModelQueue, Waiting
from sie_core.contracts import (
    Batch,
    BatchLimits,
    InferenceError,
    QueuedModel,
    QueuedRequest,
    QueuedUnit,
    QueueLimits,
)

# Bounds a batch that others wait for, in seconds and in times the overhead of a batch, whichever is more: shorter ones
# would cost more than a sixth of the throughput.
SHARED_S: Final = 0.05
PAYS: Final = 6.0
# Bounds a batch in times the largest one that was measured.
GROWTH: Final = 8.0
# Seconds for which a request that came beside another one is a sign that more do.
AGAIN_S: Final = 1.0
# The part of a batch's time, and of the time of each of its requests, for which shorter requests preempt it; and the
# seconds of both from which it is worth asking for them.
PREEMPTED: Final = 0.25
PREEMPTIBLE_S: Final = 0.02
# Times the predicted seconds, an answer must be there by its deadline: runs vary by some percent, and outputs are
# finished afterwards.
MARGIN: Final = 1.2


@dataclass(slots=True)
class _Running:
    # A batch on the device. It may still be preempted for so many seconds, by requests that run for so many at most.
    predicted_s: float
    preempted_s: float
    shorter_s: float
    # Whether it preempted another one.
    within: bool


class FairScheduler:
    """The default scheduler; see `Scheduler` for its methods."""

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self._models: dict[QueuedModel, ModelQueue] = {}
        self._running: dict[Batch, _Running] = {}
        # When the one began that the device is at; that time moves on while it is preempted.
        self._since = 0.0
        # Seconds of the device that a model was given that waits all the time, over its weight.
        self._time = 0.0
        # When a request last came while another one waited or ran.
        self._beside_at = -inf
        self._booking = Booking()

    def add_model(self, model: QueuedModel, limits: BatchLimits) -> None:
        """Serve a model from now on."""
        self._models[model] = ModelQueue(limits)

    def remove_model(self, model: QueuedModel) -> None:
        """Forget a model, of which nothing waits."""
        del self._models[model]

    def add(self, request: QueuedRequest, units: Sequence[QueuedUnit], now: float) -> None:
        """Queue units of a request, or raise `QUEUE_FULL`."""
        queue = self._models[request.model]
        if not request.admitted:
            cost = sum(map(COST, units))
            waiting = [each for each in self._models.values() if each.cost]
            if waiting or self._running:
                self._admit(queue, waiting, request, cost, now)
                self._beside_at = now
        if not queue.cost:
            queue.tag, queue.since = max(queue.tag, self._time), now
        queue.add(request, units)

    def next(self, now: float, *, ahead: bool = False, within: Batch | None = None) -> Batch | None:
        """Form the next batch."""
        waiting = [queue for queue in self._models.items() if queue[1].cost]
        if not waiting:
            return None
        model, queue = waiting[0] if len(waiting) == 1 else min(waiting, key=lambda each: (each[1].tag, each[1].since))
        key, first = queue.first()
        if within is not None:
            longest_s = self._preempts_s(queue, first, within)
        else:
            longest_s = self._longest_s(queue, shared=len(waiting) > 1 or len(queue.requests) > 1, now=now)
        if longest_s <= 0 or (ahead and len(waiting) == 1 and self._fits_one(queue, longest_s)):
            return None
        fits = None if queue.units == 1 else self._fitting(queue, first, longest_s, now)
        taken = queue.take(key, fits, now)
        units = sorted(chain.from_iterable(taken.values()), key=COST)
        cost = sum(map(COST, units))
        predicted_s = queue.speed.predict(cost)
        run_s = shortest_s = predicted_s or 0.0
        if run_s >= PREEMPTIBLE_S:
            shortest_s = min(queue.speed.predict(each.size) or 0.0 for each in taken)
        preemptible = within is None and min(run_s, shortest_s) >= PREEMPTIBLE_S and self._comes(now)
        batch = Batch(model, tuple(units), cost, predicted_s=predicted_s, preemptible=preemptible)
        if within is not None:
            self._running[within].preempted_s -= run_s
        if not self._running:
            self._since = now
        self._running[batch] = _Running(run_s, PREEMPTED * run_s, PREEMPTED * shortest_s, within is not None)
        self._time = max(self._time, queue.tag)
        queue.tag += run_s / queue.limits.weight
        return batch

    def late(self, now: float) -> list[QueuedRequest]:
        """Drop requests that cannot be answered by their deadline any more; return them."""
        dropped = []
        for queue in self._models.values():
            for request in list(queue.requests):
                if request.deadline is not None and request.deadline <= now:
                    queue.cancel(request)
                    dropped.append(request)
            for first in queue.in_turn() if len(queue.requests) > 1 else ():
                # A lone one is tried, and what it takes is measured.
                deadline = first.request.deadline or inf
                if len(queue.requests) == 1 or now + self._drain_s(queue, first.left) <= deadline:
                    break
                queue.cancel(first.request)
                dropped.append(first.request)
        return dropped

    def ran(self, batch: Batch, seconds: float | None, now: float) -> None:
        """Note that a batch has left the device."""
        running = self._running.pop(batch, None)
        if running is not None:
            self._since = self._since + (seconds or 0.0) if running.within else now
        queue = self._models.get(batch.model)
        if queue is not None:
            # What failed is not charged: its parts are, when they have run.
            charged_s = 0.0 if running is None else running.predicted_s
            queue.tag += ((seconds or 0.0) - charged_s) / queue.limits.weight
            if seconds is not None:
                queue.speed.record(batch.cost, seconds)

    def cancel(self, request: QueuedRequest) -> int:
        """Drop every queued unit of a request; return how many."""
        queue = self._models.get(request.model)
        return 0 if queue is None else queue.cancel(request)

    def waiting(self, model: QueuedModel) -> tuple[int, int]:
        """Return how many units wait of a model, and their cost."""
        queue = self._models[model]
        return queue.units, queue.cost

    def _comes(self, now: float) -> bool:
        return now - self._beside_at <= AGAIN_S

    def _longest_s(self, queue: ModelQueue, now: float, *, shared: bool) -> float:
        # Return how long a batch may run, by prediction.
        most_s = inf if queue.limits.max_run_s is None else queue.limits.max_run_s
        if shared or self._comes(now):
            most_s = min(most_s, SHARED_S)
        return max(most_s, PAYS * queue.speed.overhead_s)

    def _preempts_s(self, queue: ModelQueue, first: Waiting, within: Batch) -> float:
        # Return how long a batch may run that this request leads, in the middle of another one; 0 where it may not.
        running = self._running.get(within)
        predicted_s = queue.speed.predict(first.left)
        if running is None or predicted_s is None:
            return 0.0
        longest_s = min(running.preempted_s, running.shorter_s)
        return longest_s if predicted_s <= longest_s else 0.0

    def _fits_one(self, queue: ModelQueue, longest_s: float) -> bool:
        # Whether all that waits makes one batch.
        return queue.cost <= _full(queue, longest_s) and len(queue.requests) <= queue.limits.max_requests

    def _fitting(self, queue: ModelQueue, first: Waiting, longest_s: float, now: float) -> Fits:
        # Tell whether a batch that this request leads may have another unit, for `ModelQueue.take`.
        speed, most, most_requests = queue.speed, _full(queue, longest_s), queue.limits.max_requests
        if longest_s < inf:  # a mistaken guess must not hold the device for long
            most = min(most, GROWTH * speed.largest)
        if not speed.knows_overhead:  # a larger batch tells it
            most = max(most, min(2 * speed.largest, queue.limits.max_cost))
        first_s = speed.predict(first.size) or 0.0
        end_by = inf if first.request.deadline is None else first.request.deadline

        def fits(cost: int, requests: int, waiting: Waiting) -> bool:
            nonlocal end_by
            if cost > most or requests > most_requests:
                return False
            # It does not wait for the units of a request that it would preempt.
            whole_s = speed.predict(waiting.size) or 0.0
            if whole_s >= PREEMPTIBLE_S and PREEMPTED * whole_s > first_s:
                return False
            # Nobody in the batch may be late for the length of it.
            run_s, deadline = speed.predict(cost) or 0.0, waiting.request.deadline or inf
            if now + MARGIN * run_s > end_by or now + run_s > deadline:
                return False
            end_by = min(end_by, deadline)
            return True

        return fits

    def _admit(
        self, queue: ModelQueue, waiting: Sequence[ModelQueue], request: QueuedRequest, cost: int, now: float
    ) -> None:
        # Raise `QUEUE_FULL` for a request that finds no room or would be late.
        queued, own_s = sum(each.cost for each in waiting), self._drain_s(queue, cost + request.more_cost)
        if queue.cost and queued + cost > self._limits.max_cost and not self._has_share(queue, waiting, request, cost):
            raise InferenceError(
                "QUEUE_FULL",
                f"{queued} cost units are queued, {queue.cost} of them for {request.model.id}; {cost} more exceed "
                f"SIE_MAX_QUEUED_COST={self._limits.max_cost}.",
                retry_after_s=self._booking.retry_after_s(
                    now, self._drain_s(queue, queued + cost - self._limits.max_cost), own_s
                ),
            )
        if request.deadline is None:
            return
        before, until_s = queue.before(request, cost)
        run_s = self._drain_s(queue, before)
        beside_s = sum(self._beside_s(other, queue, run_s) for other in waiting if other is not queue)
        wait_s, left_s = self._busy_s(now) + max(run_s + beside_s, until_s), max(0.0, request.deadline - now)
        if not queue.cost and not any(batch.model is request.model for batch in self._running):
            wait_s -= own_s  # it is tried, and what it takes is measured: an outlier must not refuse a model for good
        if MARGIN * wait_s > left_s:
            alone = MARGIN * own_s > left_s
            why = "even alone" if alone else "behind others"
            raise InferenceError(
                "QUEUE_FULL",
                f"The answer of {request.model.id} would take about {wait_s:.2f} s {why}, and the deadline is in "
                f"{left_s:.2f} s.",
                # Nobody waits for the time of a request that would always be late.
                retry_after_s=self._booking.retry_after_s(now, MARGIN * wait_s - left_s, 0.0 if alone else own_s),
            )

    def _has_share(self, queue: ModelQueue, waiting: Sequence[ModelQueue], request: QueuedRequest, cost: int) -> bool:
        # Whether a client has an equal share of a full queue left: a flood keeps nobody out. Twice the limit may wait.
        own, most = queue.waits(request), self._limits.max_cost
        clients = sum(len(each.clients) for each in waiting) + (not own)
        return own + cost <= most // clients and sum(each.cost for each in waiting) + cost <= 2 * most

    def _drain_s(self, queue: ModelQueue, cost: int) -> float:
        longest_s = self._longest_s(queue, 0.0, shared=True)
        return queue.speed.drain_s(cost, max(1.0, _full(queue, longest_s)))

    def _beside_s(self, other: ModelQueue, queue: ModelQueue, seconds: float) -> float:
        # Return what another model runs while this one does for so many seconds.
        return min(self._drain_s(other, other.cost), seconds * other.limits.weight / queue.limits.weight)

    def _busy_s(self, now: float) -> float:
        return max(0.0, sum(each.predicted_s for each in self._running.values()) - (now - self._since))


def _full(queue: ModelQueue, longest_s: float) -> float:
    # Return the cost of the largest batch that runs for so long.
    most = float(queue.limits.max_cost)
    return most if longest_s == inf else min(most, queue.speed.within(longest_s))
