"""The batch former against a model of it, under any order of calls."""

from collections import OrderedDict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sie_core.batching import BatchFormer, CostModel
from sie_core.contracts import BatchLimits, QueuedUnit, Unit

REQUESTS = st.integers(0, 6)


class Former(RuleBasedStateMachine):
    """Queued units by arrival are all the model there is; every batch is checked against them."""

    @initialize(
        max_cost=st.integers(1, 30),
        max_requests=st.integers(1, 4),
        max_run_s=st.none() | st.floats(0.001, 1),
        max_wait_s=st.floats(0, 2),
    )
    def start(self, max_cost, max_requests, max_run_s, max_wait_s):
        self.limits = BatchLimits(max_cost, max_requests, max_run_s, max_wait_s)
        self.former = BatchFormer(self.limits)
        self.costs = CostModel()  # learns what the former learns
        self.largest = 0
        self.now = 0.0
        self.queue = OrderedDict()  # ticket -> unit, by arrival
        self.tickets = 0
        self.added, self.ran, self.dropped = set(), set(), set()

    @rule(seconds=st.floats(0, 3))
    def pass_time(self, seconds):
        self.now += seconds

    @rule(
        request=REQUESTS,
        units=st.lists(st.tuples(st.integers(1, 40), st.sampled_from("xyz")), min_size=1, max_size=8),
        lifetime=st.none() | st.floats(0, 4),
    )
    def add(self, request, units, lifetime):
        deadline = None if lifetime is None else self.now + lifetime
        queued = []
        for cost, key in units:
            queued.append(QueuedUnit(Unit(self.tickets, cost, key, None), request, self.now, deadline))
            self.queue[self.tickets] = queued[-1]
            self.added.add(self.tickets)
            self.tickets += 1
        self.former.add(queued)

    @rule(request=REQUESTS)
    def cancel(self, request):
        mine = [ticket for ticket, unit in self.queue.items() if unit.request == request]
        assert self.former.cancel(request) == len(mine)
        self.drop(mine)

    @rule()
    def expire(self):
        late = {unit.request for unit in self.queue.values() if unit.deadline is not None and unit.deadline <= self.now}
        assert self.former.expire(self.now) == late
        self.drop([ticket for ticket, unit in self.queue.items() if unit.request in late])

    def drop(self, tickets):
        for ticket in tickets:
            del self.queue[ticket]
        self.dropped.update(tickets)

    @rule(seconds_per_unit=st.floats(0, 0.1))
    def take_for_an_idle_device(self, seconds_per_unit):
        waiting = bool(self.queue)
        batch = self.former.take(self.now, device_busy=False)
        assert (batch is not None) == waiting  # an idle device never waits
        if batch is not None:
            self.check(batch)
            self.former.record(batch, batch.cost * seconds_per_unit)
            self.costs.record(batch.cost, batch.cost * seconds_per_unit)
            self.largest = max(self.largest, batch.cost)

    @rule()
    def take_for_a_busy_device(self):
        ready_at = self.former.ready_at(self.now)
        batch = self.former.take(self.now, device_busy=True)
        assert (batch is not None) == (ready_at is not None and ready_at <= self.now)
        if batch is not None:
            self.check(batch)

    @precondition(lambda self: self.queue)
    @rule()
    def wait_as_long_as_it_may_take(self):
        oldest = next(iter(self.queue.values()))
        ready_at = self.former.ready_at(self.now)
        assert ready_at <= max(self.now, oldest.enqueued_at + self.limits.max_wait_s)  # the wait is bounded
        self.now = ready_at
        self.check(self.former.take(self.now, device_busy=True))

    def check(self, batch):
        tickets = [queued.unit.item for queued in batch.units]
        first = next(iter(self.queue.values()))
        of_key = [ticket for ticket, unit in self.queue.items() if unit.unit.key == first.unit.key]
        assert sorted(tickets) == of_key[: len(tickets)]  # the oldest unit's key, from the front: nothing starves
        assert all(self.queue[ticket] is queued for ticket, queued in zip(tickets, batch.units, strict=True))
        costs = [queued.unit.cost for queued in batch.units]
        assert costs == sorted(costs)
        assert all(a < b for (a, b, x, y) in zip(tickets, tickets[1:], costs, costs[1:], strict=False) if x == y)
        assert batch.cost == sum(costs)
        assert batch.requests == len({queued.request for queued in batch.units})
        if len(tickets) > 1:
            assert batch.cost <= self.limits.max_cost
            assert batch.requests <= self.limits.max_requests
            assert not self.too_long(batch.cost, first.unit.cost)
        self.check_it_could_not_hold_more(batch, first, of_key[len(tickets) :])
        for ticket in tickets:
            del self.queue[ticket]
        assert self.ran.isdisjoint(tickets)
        self.ran.update(tickets)

    def check_it_could_not_hold_more(self, batch, first, left):
        if left:
            unit = self.queue[left[0]]
            requests = {queued.request for queued in batch.units} | {unit.request}
            cost = batch.cost + unit.unit.cost
            assert (
                cost > self.limits.max_cost
                or len(requests) > self.limits.max_requests
                or self.too_long(cost, first.unit.cost)
            )

    def too_long(self, cost, first):
        predicted, alone = self.costs.predict(cost), self.costs.predict(first)
        if self.limits.max_run_s is None or cost <= first:
            return False
        if cost > 8 * self.largest:  # nothing as large was measured yet
            return True
        return predicted > max(self.limits.max_run_s, 2 * alone)

    @invariant()
    def counts_are_true(self):
        if hasattr(self, "queue"):
            assert self.former.queued_units == len(self.queue)
            assert self.former.queued_cost == sum(unit.unit.cost for unit in self.queue.values())
            oldest = next(iter(self.queue.values()), None)
            assert self.former.oldest() == (None if oldest is None else oldest.enqueued_at)

    def teardown(self):
        if hasattr(self, "queue"):
            while self.queue:
                self.check(self.former.take(self.now, device_busy=False))
            assert self.former.take(self.now, device_busy=False) is None
            assert self.ran | self.dropped == self.added  # each ran once or was dropped,
            assert self.ran.isdisjoint(self.dropped)  # and what was dropped never ran


Former.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestFormer = Former.TestCase
