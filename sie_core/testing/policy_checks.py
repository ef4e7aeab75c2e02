"""What every batch policy must do, checked with seeded traffic and a clock of the check's own.

A check that fails raises AssertionError with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from itertools import count
from random import Random

from sie_core.contracts import Batch, BatchLimits, BatchPolicy, QueuedUnit, Unit
from sie_core.contracts.device.batching import AGE_S, BatchPolicyFactory
from sie_core.plugins.calls import Calls, HungError

CHECK_LIMIT_S = 60.0
"""How long a check may take: a policy of the default's pace takes a second."""
LIMITS = BatchLimits(max_cost=64, max_requests=4, max_run_s=None, max_wait_s=0.01)
SEEDS = range(20)
BATCH_S = 1.0
"""What a batch takes where it matters for how long units wait."""


class Traffic:
    """Makes queued units: one to five a request, of two inference keys, some of them above the cost limit."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._ids = count()

    def request(self, now: float, deadline: float | None = None) -> list[QueuedUnit]:
        """Make the units of one new request."""
        request, key = next(self._ids), self._random.choice("ab")
        costs = [self._random.choice([1, 2, 7, 30, LIMITS.max_cost + 9]) for _ in range(self._random.randint(1, 5))]
        units = [Unit(position, cost, key, None) for position, cost in enumerate(costs)]
        return [QueuedUnit(unit, request, now, deadline) for unit in units]


def every_unit_runs_once_and_within_the_limits(factory: BatchPolicyFactory) -> None:
    """Nothing is lost or doubled; a batch has one key, keeps its limits and is sorted by cost."""
    for seed in SEEDS:
        policy, traffic, now = _fresh(factory), Traffic(seed), 0.0
        queued: list[QueuedUnit] = []
        ran: list[QueuedUnit] = []
        for _ in range(30):
            units = traffic.request(now := now + 0.001)
            queued += units
            policy.add(units)
            if now > 0.01:
                ran += _checked(policy.take(now, device_busy=False))
        ran += _drained(policy, now, len(queued) - len(ran))
        assert len(ran) == len(queued), f"{len(queued)} units were queued and {len(ran)} ran"
        assert set(map(id, ran)) == set(map(id, queued)), "the units that ran are not those queued"


def _checked(batch: Batch | None) -> Sequence[QueuedUnit]:
    assert batch is not None, "an idle device got no batch though units were queued"
    costs = [queued.unit.cost for queued in batch.units]
    assert costs, "an empty batch"
    assert len(costs) == 1 or sum(costs) <= LIMITS.max_cost, f"a batch of cost {sum(costs)} above {LIMITS.max_cost}"
    requests = {queued.request for queued in batch.units}
    assert len(requests) <= LIMITS.max_requests, f"a batch of {len(requests)} requests, allowed {LIMITS.max_requests}"
    assert costs == sorted(costs), f"the costs {costs} are not cheapest first"
    assert {queued.unit.key for queued in batch.units} == {batch.key}, "a batch mixes inference keys"
    assert batch.cost == sum(costs), f"batch.cost says {batch.cost}, its units say {sum(costs)}"
    return batch.units


def _fresh(factory: BatchPolicyFactory) -> BatchPolicy:
    """Make a policy with an empty queue; one that shares a queue with others would grow it from check to check."""
    policy = factory(LIMITS)
    held = policy.queued_units
    assert held == 0, f"a new policy holds {held} units: each model needs a policy and a queue of its own"
    return policy


def _drained(policy: BatchPolicy, now: float, expected: int) -> list[QueuedUnit]:
    """Take all that is queued, which is `expected` units at most."""
    ran: list[QueuedUnit] = []
    while policy.queued_units:
        assert len(ran) < expected, f"all {expected} units ran and queued_units says {policy.queued_units} more wait"
        before = policy.queued_units
        ran += _checked(policy.take(now, device_busy=False))
        assert policy.queued_units < before, "take gave a batch and queued_units did not fall"
    assert policy.queued_cost == 0, f"nothing is queued and queued_cost is {policy.queued_cost}"
    assert policy.take(now, device_busy=False) is None, "take gives a batch from an empty queue"
    assert policy.oldest() is None, "nothing is queued and oldest is not None"
    assert policy.ready_at(now) is None, "nothing is queued and ready_at is not None"
    return ran


def cancelled_units_never_run(factory: BatchPolicyFactory) -> None:
    """`cancel` drops all queued units of a request and says how many; the counts follow."""
    for seed in SEEDS:
        policy, traffic = _fresh(factory), Traffic(seed)
        requests = [traffic.request(0.0) for _ in range(12)]
        for units in requests:
            policy.add(units)
        cancelled, kept = requests[::2], requests[1::2]
        for units in cancelled:
            dropped = policy.cancel(units[0].request)
            assert dropped == len(units), f"cancel dropped {dropped} of {len(units)} units"
            assert policy.cancel(units[0].request) == 0, "a second cancel drops units again"
        expected = [queued for units in kept for queued in units]
        assert policy.queued_units == len(expected), "queued_units counts cancelled units"
        assert policy.queued_cost == sum(queued.unit.cost for queued in expected), "queued_cost counts cancelled units"
        assert set(map(id, _drained(policy, 0.0, len(expected)))) == set(map(id, expected)), (
            "cancelled units ran, or others were lost"
        )


def late_requests_never_run(factory: BatchPolicyFactory) -> None:
    """`expire` drops every unit of a request past its deadline and names the request, and no other."""
    policy, traffic = _fresh(factory), Traffic(0)
    late, early, endless = traffic.request(0.0, 1.0), traffic.request(0.0, 3.0), traffic.request(0.0)
    for units in (late, early, endless):
        policy.add(units)
    assert policy.expire(0.5) == set(), "a request expired before its deadline"
    assert policy.expire(2.0) == {late[0].request}, "expire names other requests than the late one"
    left = early + endless
    assert set(map(id, _drained(policy, 2.0, len(left)))) == set(map(id, left)), "a late unit ran, or others were lost"


def an_idle_device_never_waits(factory: BatchPolicyFactory) -> None:
    """With an idle device a single queued unit is a batch; with a busy one there is one by `ready_at` at the latest."""
    policy = _fresh(factory)
    unit = QueuedUnit(Unit(0, 1, "a", None), "one", 5.0)
    policy.add([unit])
    assert policy.oldest() == 5.0, f"oldest says {policy.oldest()}, the unit was queued at 5.0"
    ready = policy.ready_at(5.0)
    assert ready is not None, "a unit is queued and ready_at is None"
    assert ready <= 5.0 + LIMITS.max_wait_s, f"ready_at lets a unit wait {ready - 5.0:.3f} s, above the limit"
    assert policy.take(ready, device_busy=True) is not None, "ready_at is past and take gives no batch"
    policy.add([unit])
    assert policy.take(5.0, False, most_s=0.0) is not None, "the device is idle and take waits"


def nothing_starves(factory: BatchPolicyFactory) -> None:
    """A unit runs within the bound that `BatchPolicy.take` states, though requests of either key keep coming."""
    for seed in SEEDS:
        policy, traffic = _fresh(factory), Traffic(seed)
        before = [traffic.request(0.0) for _ in range(5)]
        patient = QueuedUnit(Unit(0, LIMITS.max_cost, "a", None), "patient", 0.0)
        for units in (*before, [patient]):
            policy.add(units)
        ahead = sum(map(len, before))
        bound_s = AGE_S + BATCH_S * (1 + 2 * ahead)
        for now in count(0.0, BATCH_S):
            assert now < bound_s, f"a unit with {ahead} ahead of it, in batches of {BATCH_S:g} s, waits for {now:g} s"
            policy.add(traffic.request(now))
            if patient in _checked(policy.take(now, device_busy=False)):
                break


def _bounded(check: Callable[[BatchPolicyFactory], None]) -> Callable[[BatchPolicyFactory], None]:
    """Have a check fail that does not come to an end."""

    @wraps(check)
    def bounded(factory: BatchPolicyFactory) -> None:
        try:
            Calls().within(check.__name__, CHECK_LIMIT_S, lambda: check(factory))
        except HungError as error:
            raise AssertionError(f"a method of the policy hangs, or is far too slow: the check {error}") from None

    return bounded


POLICY_CHECKS: Sequence[Callable[[BatchPolicyFactory], None]] = tuple(
    map(
        _bounded,
        (
            every_unit_runs_once_and_within_the_limits,
            cancelled_units_never_run,
            late_requests_never_run,
            an_idle_device_never_waits,
            nothing_starves,
        ),
    )
)
