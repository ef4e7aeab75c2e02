"""The default batch policy: what runs together, and when. It must not know threads, devices, adapters or a clock.

Units queue in lanes, one an inference key. The lane whose first unit is the oldest of all is served, from its front, so
nothing starves. Every operation costs O(log n) a unit it adds, drops or takes, whatever the length of the queue.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from heapq import heapify, heappop, heappush
from operator import attrgetter

from sie_core.batching.cost_model import CostModel
from sie_core.batching.lane import Lane
from sie_core.contracts import Batch, BatchLimits, QueuedUnit

_SLACK = 64
"""How many outdated heap entries are tolerated beyond as many as there are valid ones."""

_LONGER = 2.0
"""A batch may take so many times its first unit's own time, however long that is: where every run costs much, whatever
it holds, a limit below that cost would otherwise make a batch of each unit, and pay the cost for each."""

_GROWTH = 8
"""Where its time is bounded, a batch of several units may cost so many times the largest measured one: the first run of
all takes long whatever it holds, and those after it then seem to show that nothing costs anything."""

_cost = attrgetter("unit.cost")


class BatchFormer:
    """Queues the units of one model and forms its batches: cost, requests, predicted time and wait are bounded.

    Implements `sie_core.contracts.BatchPolicy`. The times units are queued at must not decrease.
    """

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._cost_model = CostModel()
        self._largest_measured = 0
        self._lanes: dict[Hashable, Lane] = {}
        self._heads: list[tuple[int, Lane]] = []
        """A heap of lanes by the ticket of their first unit; an entry is outdated when that unit is gone."""
        self._of_request: dict[Hashable, dict[int, Lane]] = {}
        """Where the queued units of each request stand."""
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
        """When `take` with a busy device will give a batch if nothing else comes; None where nothing is queued."""
        lane = self._oldest_lane()
        return None if lane is None else self._ready_at(lane, now)

    def oldest(self) -> float | None:
        """When the oldest queued unit was queued; None where nothing is."""
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
        """Whether a batch of `cost` may take too long, given the cost of its first unit, which alone never does."""
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
        if not self._lanes:  # outdated entries would keep the last requests, and LoRA adapters of their keys, alive
            self._heads.clear()
            self._deadlines.clear()

    def _announce(self, lane: Lane) -> None:
        """Put the lane in its place among the lanes, where its first unit is another than before."""
        if lane.units and (first := next(iter(lane.units))) != lane.announced:
            lane.announced = first
            heappush(self._heads, (first, lane))

    def _tidy(self) -> None:
        """Rebuild a heap that outdated entries have come to dominate, so that memory follows the queue."""
        if len(self._heads) > 2 * len(self._lanes) + _SLACK:
            self._heads = [(next(iter(lane.units)), lane) for lane in self._lanes.values()]
            heapify(self._heads)
        if len(self._deadlines) > 2 * self._queued_units + _SLACK:
            queued = self._of_request
            self._deadlines = [entry for entry in self._deadlines if entry[1] in queued.get(entry[2], ())]
            heapify(self._deadlines)
