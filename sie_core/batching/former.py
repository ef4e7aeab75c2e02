"""The default batch policy: which units run together, and when.

The flow whose turn it is gives a batch its inference key; it is filled with units of that key, in the fair order.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from operator import attrgetter

from sie_core.batching.cost_model import MARGIN, CostModel, FixedTime
from sie_core.batching.fair_queue import FairQueue, Lane
from sie_core.batching.flow import Flow
from sie_core.contracts import Batch, BatchLimits, QueuedUnit

# The heap is rebuilt when its outdated entries outnumber the valid ones by more than this.
_SLACK = 64

# A batch may always take this many times the time of its first unit. Where every run has a large overhead, a time
# limit below it would otherwise run each unit alone and pay the overhead for each.
_LONGER = 2.0

# While short requests come, a batch of large ones may hold the device for so many seconds, or for as long as a request
# takes that is not large.
_HELD_S = 0.02

# The batch of a large request that fits into one may take this many times as long as one of a request of many batches:
# it is over soon, and where several of them come in a row, batches of a few units would cost what all are waiting for.
_FITTING = 2.25

# A batch that others wait for may take so many times the time that every batch takes: it then loses a sixth of the
# throughput, and a little more as nothing is launched behind it.
_PAYS = 6.0

# With a time limit, a batch of several units may cost this many times the largest measured one. The very first run is
# slow at any cost, and the runs after it then make cost look free.
_GROWTH = 8

# The share of a batch that a request without a deadline may fill in one turn where others wait. A deadline makes the
# whole request one turn.
_TURN = 0.25

# For so many seconds after a batch, requests that are predicted to be late are dropped. Where no batch runs, nothing
# corrects a wrong prediction, and it would drop every request.
_TRUSTED_S = 1.0

_cost = attrgetter("unit.cost")


class BatchFormer:
    """Queues the units of one model and forms its batches, bounded in cost, requests, predicted time and wait.

    Implements `sie_core.contracts.BatchPolicy`. Times of queueing must not decrease.
    """

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._cost_model = CostModel()
        self._fixed = FixedTime()
        self._largest_measured = 0
        self._queue = FairQueue()
        # A heap of the deadlines of flows, by their numbers; an entry is outdated when its flow is gone.
        self._deadlines: list[tuple[float, int, Flow]] = []
        self._last_taken = -inf

    @property
    def queued_cost(self) -> int:
        """Cost units queued."""
        return self._queue.cost

    @property
    def queued_units(self) -> int:
        """Units queued."""
        return self._queue.units

    def add(self, units: Sequence[QueuedUnit]) -> None:
        """Queue units in this order."""
        for flow in self._queue.add(units, self._quantum()):
            if flow.deadline is not None:
                heappush(self._deadlines, (flow.deadline, flow.number, flow))
        self._tidy()

    def cancel(self, request: Hashable) -> int:
        """Drop every queued unit of `request`; return how many. Dropped units never run."""
        dropped = self._queue.remove(request)
        self._tidy()
        return dropped

    def expire(self, now: float) -> set[Hashable]:
        """Drop the requests whose deadline is past, and those next in turn that would be answered after it."""
        expired: set[Hashable] = set()
        if not self._deadlines:
            return expired
        while self._deadlines and self._deadlines[0][0] <= now:
            self._drop(heappop(self._deadlines)[2], expired)
        while now - self._last_taken <= _TRUSTED_S and (flow := self._queue.next(now)) is not None:
            whole: float = flow.cost
            if not flow.started and flow.cost > self._quantum():
                whole = min(self._queue.cost, flow.cost * self._queue.time.weight * flow.pace)
            if flow.deadline is None or self._end(whole, now) <= flow.deadline:
                break
            self._drop(flow, expired)
        self._tidy()
        return expired

    def take(
        self,
        now: float,
        device_busy: bool,
        most_s: float | None = None,
        preempting: bool = False,
        hold_s: float | None = None,
    ) -> Batch | None:
        """Form the next batch, or None where nothing is queued or, with a busy device, waiting may fill it further."""
        flow = self._queue.by_share() if preempting else self._queue.next(now)
        if flow is None:
            return None
        large = self._is_large(flow, most_s)
        if preempting and (large or most_s is None or (self._cost_model.predict(flow.cost) or inf) > _held_s(most_s)):
            return None
        key = flow.key()
        lane = self._queue.lanes[key]
        if device_busy and self._ready_at(flow, lane, now) > now:
            return None
        led_by_age = flow is self._queue.aged(now)
        taken: list[QueuedUnit] = []
        flows: dict[Hashable, Flow] = {}
        cost, end_by, quantum = 0, inf, self._quantum()
        pays_s = self._paying_s(hold_s, flow.units[key][0][1].unit.cost)
        while flow is not None:
            queued = flow.units[key][0][1]
            total, new = cost + queued.unit.cost, queued.request not in flows
            deadline = inf if flow.deadline is None else flow.deadline
            if taken and most_s is not None and self._is_large(flow, most_s) != large:
                break  # a short request would wait for the large one's units
            longest_s = self._limit_s(flow, large, most_s)
            if taken and not self._fits(total, len(flows) + new, taken[0].unit.cost, longest_s):
                break
            if taken and pays_s < inf and (self._cost_model.predict(total) or 0.0) > pays_s:
                break
            if taken and deadline != end_by and self._end(total, now) > end_by:
                break  # requests already in the batch would be late
            if taken and new and self._end(cost + flow.cost, now) > deadline:
                break  # the new request itself would be late
            flows[queued.request] = flow
            end_by, cost = min(end_by, deadline), total
            taken.append(self._queue.take(flow, key, quantum))
            flow = lane.turns.first(self._queue.time.now)
        self._queue.served(list(flows.values()), cost, now, led_by_age=led_by_age)
        self._last_taken = now
        self._tidy()
        taken.sort(key=_cost)
        return Batch(tuple(taken), key, cost, self._cost_model.predict(cost), len(flows), large)

    def ready_at(self, now: float) -> float | None:
        """Return when `take` with a busy device gives a batch if nothing else comes; None where nothing is queued."""
        flow = self._queue.next(now)
        return None if flow is None else self._ready_at(flow, self._queue.lanes[flow.key()], now)

    def oldest(self) -> float | None:
        """Return when the unit was queued that has waited longest for a turn; None where nothing is."""
        flow = self._queue.longest_unserved()
        return None if flow is None else flow.units[flow.key()][0][1].enqueued_at

    def record(self, batch: Batch, seconds: float) -> None:
        """Learn how long a batch ran."""
        self._cost_model.record(batch.cost, seconds)
        self._fixed.record(batch.cost, seconds)
        self._largest_measured = max(self._largest_measured, batch.cost)

    def _full(self) -> float:
        # The cost of the largest batch there may be.
        limit = self._limits.max_run_s
        return self._limits.max_cost if limit is None else min(self._limits.max_cost, self._cost_model.within(limit))

    def _quantum(self) -> float:
        # The cost that a turn may take.
        return max(1.0, _TURN * self._full())

    def _end(self, cost: float, now: float) -> float:
        return now + MARGIN * (self._cost_model.predict(cost) or 0.0)

    def _fits(self, cost: int, requests: int, first: int, most_s: float | None) -> bool:
        return (
            cost <= self._limits.max_cost
            and requests <= self._limits.max_requests
            and not self._too_long(cost, first, self._limits.max_run_s or inf)
            and not (most_s is not None and self._holds_up(cost, first, most_s))
        )

    def _paying_s(self, hold_s: float | None, first: int) -> float:
        # For how long a batch may hold the device that should hold it for `hold_s`: so short ones may not pay.
        if hold_s is None:
            return inf
        fixed_s = self._fixed.seconds()
        if fixed_s is None:  # a smaller one tells, or a larger one where a unit has more
            smallest = self._fixed.smallest()
            return self._cost_model.predict(smallest / 2 if first <= smallest / 2 else 4 * smallest) or inf
        return max(hold_s, _PAYS * fixed_s)

    def _is_large(self, flow: Flow, most_s: float | None) -> bool:
        # A request of one unit is large only where it fills a batch. Others of one text are as short as those they hold
        # up: cut so short, their batches would cost a fifth of the throughput where all send one text of any length.
        if most_s is None:
            return False
        return flow.largest > self._full() or (
            flow.several and (self._cost_model.predict(flow.largest) or 0.0) > most_s
        )

    def _limit_s(self, flow: Flow, large: bool, most_s: float | None) -> float | None:
        if not large or most_s is None:
            return None
        return _held_s(most_s) if flow.largest > self._full() else _FITTING * _held_s(most_s)

    def _holds_up(self, cost: int, first: int, most_s: float) -> bool:
        # Where every run has a large overhead, a batch may take that much longer than its first unit alone.
        alone, predicted = self._cost_model.predict(first), self._cost_model.predict(cost)
        if alone is None or predicted is None:
            return cost > first
        return predicted > max(most_s, alone + self._cost_model.overhead)

    def _too_long(self, cost: int, first: int, limit_s: float) -> bool:
        """Whether a batch of `cost` may take too long; its first unit, of cost `first`, is always allowed."""
        if limit_s == inf or cost <= first:
            return False
        alone, predicted = self._cost_model.predict(first), self._cost_model.predict(cost)
        if alone is None or predicted is None or cost > _GROWTH * self._largest_measured:
            return True
        return predicted > max(limit_s, _LONGER * alone)

    def _ready_at(self, flow: Flow, lane: Lane, now: float) -> float:
        full = (
            lane.cost >= self._limits.max_cost
            or len(lane.turns.flows) >= self._limits.max_requests
            or self._too_long(lane.cost, flow.units[flow.key()][0][1].unit.cost, self._limits.max_run_s or inf)
        )
        oldest = self.oldest()
        return now if full or oldest is None else max(now, oldest + self._limits.max_wait_s)

    def _drop(self, flow: Flow, expired: set[Hashable]) -> None:
        if flow.units:
            expired.add(flow.request)
            self._queue.remove(flow.request)

    def _tidy(self) -> None:
        # Memory shrinks with the queue.
        if not self._queue.units:
            self._deadlines.clear()
        elif len(self._deadlines) > 2 * len(self._queue.flows) + _SLACK:
            flows = self._queue.flows.values()
            self._deadlines = [(each.deadline, each.number, each) for each in flows if each.deadline is not None]
            heapify(self._deadlines)


def _held_s(most_s: float) -> float:
    return max(_HELD_S, most_s)
