"""The default batch policy: which units run together, and when.

Units queue in lanes, one for each inference key. The lane with the oldest unit is served first, from its front, so no
unit starves. Adding, dropping or taking a unit costs O(log n).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from heapq import heapify, heappop, heappush
from operator import attrgetter

from sie_core.batching.cost_model import CostModel
from sie_core.batching.lane import Lane
from sie_core.contracts import Batch, BatchLimits, QueuedUnit

_SLACK = 64
"""A heap is rebuilt when its outdated entries outnumber the valid ones by more than this."""

_LONGER = 2.0
"""A batch may always take this many times the time of its first unit. Where every run has a large overhead, a time
limit below it would otherwise run each unit alone and pay the overhead for each."""

_GROWTH = 8
"""With a time limit, a batch of several units may cost this many times the largest measured one. The very first run is
slow at any cost, and the runs after it then make cost look free."""

_cost = attrgetter("unit.cost")


class BatchFormer:
    """Queues the units of one model and forms its batches, bounded in cost, requests, predicted time and wait.

    Implements `sie_core.contracts.BatchPolicy`. Times of queueing must not decrease.
    """

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._cost_model = CostModel()
        self._largest_measured = 0
        self._lanes: dict[Hashable, Lane] = {}
        self._heads: list[tuple[int, Lane]] = []
        """A heap of lanes by the ticket of their first unit; an entry is outdated when that unit is gone."""
        self._of_request: dict[Hashable, dict[int, Lane]] = {}
        """The lanes of each request's queued units, by ticket."""
        self._deadlines: list[tuple[float, int, Hashable]] = []
        """A heap of the units' deadlines; an entry is outdated when its unit is gone."""
        self._next_ticket = 0
        self._queued_cost = 0
        self._queued_units = 0

    @property
    def queued_cost(self) -> int:
        """Cost units queued."""
        return self._queued_cost

    @property
    def queued_units(self) -> int:
        """Units queued."""
        return self._queued_units

    def add(self, units: Sequence[QueuedUnit]) -> None:
        """Queue units in this order."""
        for queued in units:
            ticket = self._next_ticket
            self._next_ticket += 1
            lane = self._lanes.get(queued.unit.key)
            if lane is None:
                lane = self._lanes[queued.unit.key] = Lane(queued.unit.key)
            lane.add(ticket, queued)
            self._announce(lane)
            self._of_request.setdefault(queued.request, {})[ticket] = lane
            self._queued_cost += queued.unit.cost
            self._queued_units += 1
            if queued.deadline is not None:
                heappush(self._deadlines, (queued.deadline, ticket, queued.request))
        self._tidy()

    def cancel(self, request: Hashable) -> int:
        """Drop every queued unit of `request`; return how many. Dropped units never run."""
        tickets = dict(self._of_request.get(request, {}))
        for ticket, lane in tickets.items():
            self._remove(ticket, lane)
        for lane in set(tickets.values()):
            self._announce(lane)
        self._tidy()
        return len(tickets)

    def expire(self, now: float) -> set[Hashable]:
        """Drop the queued units of every request with a unit whose deadline is past; return those requests."""
        expired: set[Hashable] = set()
        while self._deadlines and self._deadlines[0][0] <= now:
            _, ticket, request = heappop(self._deadlines)
            if ticket in self._of_request.get(request, ()):
                expired.add(request)
                self.cancel(request)
        return expired

    def take(self, now: float, device_busy: bool) -> Batch | None:
        """Form the next batch, or None where nothing is queued or, with a busy device, waiting may fill it further."""
        lane = self._oldest_lane()
        if lane is None or (device_busy and self._ready_at(lane, now) > now):
            return None
        taken: list[QueuedUnit] = []
        requests: set[Hashable] = set()
        cost = 0
        while lane.units:
            ticket, queued = lane.head()
            if taken and not self._fits(queued, cost, requests, first=taken[0].unit.cost):
                break
            taken.append(queued)
            requests.add(queued.request)
            cost += queued.unit.cost
            self._remove(ticket, lane)
        self._announce(lane)
        taken.sort(key=_cost)
        return Batch(tuple(taken), lane.key, cost, self._cost_model.predict(cost), len(requests))

    def ready_at(self, now: float) -> float | None:
        """Return when `take` with a busy device gives a batch if nothing else comes; None where nothing is queued."""
        lane = self._oldest_lane()
        return None if lane is None else self._ready_at(lane, now)

    def oldest(self) -> float | None:
        """Return when the oldest queued unit was queued; None where nothing is."""
        lane = self._oldest_lane()
        return None if lane is None else lane.head()[1].enqueued_at

    def record(self, batch: Batch, seconds: float) -> None:
        """Learn how long a batch ran."""
        self._cost_model.record(batch.cost, seconds)
        self._largest_measured = max(self._largest_measured, batch.cost)

    def _fits(self, queued: QueuedUnit, cost: int, requests: set[Hashable], *, first: int) -> bool:
        cost += queued.unit.cost
        return (
            cost <= self._limits.max_cost
            and (queued.request in requests or len(requests) < self._limits.max_requests)
            and not self._too_long(cost, first)
        )

    def _too_long(self, cost: int, first: int) -> bool:
        """Whether a batch of `cost` may take too long; its first unit, of cost `first`, is always allowed."""
        limit = self._limits.max_run_s
        if limit is None or cost <= first:
            return False
        alone, predicted = self._cost_model.predict(first), self._cost_model.predict(cost)
        if alone is None or predicted is None or cost > _GROWTH * self._largest_measured:
            return True
        return predicted > max(limit, _LONGER * alone)

    def _ready_at(self, lane: Lane, now: float) -> float:
        full = (
            lane.cost >= self._limits.max_cost
            or len(lane.requests) >= self._limits.max_requests
            or self._too_long(lane.cost, lane.head()[1].unit.cost)
        )
        return now if full else max(now, lane.head()[1].enqueued_at + self._limits.max_wait_s)

    def _oldest_lane(self) -> Lane | None:
        while self._heads:
            ticket, lane = self._heads[0]
            if ticket in lane.units:
                return lane
            heappop(self._heads)
        return None

    def _remove(self, ticket: int, lane: Lane) -> None:
        queued = lane.remove(ticket)
        self._queued_cost -= queued.unit.cost
        self._queued_units -= 1
        tickets = self._of_request[queued.request]
        del tickets[ticket]
        if not tickets:
            del self._of_request[queued.request]
        if not lane.units:
            del self._lanes[lane.key]
        if not self._lanes:  # outdated entries would keep the last requests, and the LoRA adapters in their keys, alive
            self._heads.clear()
            self._deadlines.clear()

    def _announce(self, lane: Lane) -> None:
        """Push the lane onto the heap again where its first unit has changed."""
        if lane.units and (first := next(iter(lane.units))) != lane.announced:
            lane.announced = first
            heappush(self._heads, (first, lane))

    def _tidy(self) -> None:
        """Rebuild a heap with too many outdated entries, so that memory shrinks with the queue."""
        if len(self._heads) > 2 * len(self._lanes) + _SLACK:
            self._heads = [(next(iter(lane.units)), lane) for lane in self._lanes.values()]
            heapify(self._heads)
        if len(self._deadlines) > 2 * self._queued_units + _SLACK:
            queued = self._of_request
            self._deadlines = [entry for entry in self._deadlines if entry[1] in queued.get(entry[2], ())]
            heapify(self._deadlines)
