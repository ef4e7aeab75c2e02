"""The checks of every scheduler, with seeded traffic and a simulated clock.

A check that fails raises AssertionError with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from itertools import count
from random import Random

from sie_core.contracts import Batch, BatchLimits, InferenceError, Priority, QueuedUnit, QueueLimits, Scheduler, Unit
from sie_core.contracts.device.scheduling import SchedulerFactory
from sie_core.plugins.calls import Calls, HungError

CHECK_LIMIT_S = 60.0
"""Upper bound in seconds on a check: a scheduler as fast as the default takes a second."""
QUEUE = QueueLimits(max_cost=4096)
LIMITS = BatchLimits(max_cost=64, max_requests=4)
SEEDS = range(20)
BATCH_S = 0.001
"""Duration of every batch in seconds, whatever its content."""


@dataclass(frozen=True)
class Model:
    """A model that requests ask."""

    id: str


@dataclass(eq=False)
class Asked:
    """A request."""

    name: Hashable
    model: Model = field(default_factory=lambda: Model("test/model"))
    client: Hashable | None = None
    priority: Priority | None = None
    deadline: float | None = None
    admitted: bool = False
    refused: bool = False
    more_cost: int = 0


class Traffic:
    """Makes requests of one to five units, of two models and two inference keys, some of them above the cost limit."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._ids = count()
        self.models = Model("test/a"), Model("test/b")

    def request(self, deadline: float | None = None) -> list[QueuedUnit]:
        """Make the units of one new request."""
        asked = Asked(next(self._ids), self._random.choice(self.models), self._random.choice([None, "one", "two"]))
        asked.priority, asked.deadline = self._random.choice([None, "bulk", "interactive"]), deadline
        costs = [self._random.choice([1, 2, 7, 30, LIMITS.max_cost + 9]) for _ in range(self._random.randint(1, 5))]
        key = self._random.choice("ab")
        return [QueuedUnit(Unit(position, cost, key, payload=None), asked) for position, cost in enumerate(costs)]


def _made(factory: SchedulerFactory, *models: Model) -> Scheduler:
    """Make a scheduler with an empty queue; a shared queue would grow from check to check."""
    scheduler = factory(QUEUE)
    for model in models:
        scheduler.add_model(model, LIMITS)
        assert scheduler.waiting(model) == (0, 0), "a new scheduler holds units: each device needs a queue of its own"
    return scheduler


def _add(scheduler: Scheduler, units: Sequence[QueuedUnit], now: float) -> bool:
    """Add a request; return whether it was admitted."""
    request = units[0].request
    assert isinstance(request, Asked)
    before = scheduler.waiting(request.model)
    try:
        scheduler.add(request, units, now)
    except InferenceError as error:
        if error.code != "QUEUE_FULL":
            raise AssertionError(f"add refused a request with {error.code}, not with QUEUE_FULL") from error
        request.refused = True
    if request.refused:
        assert scheduler.waiting(request.model) == before, "a request was refused, and some of its units wait"
        return False
    request.admitted = True
    return True


def _ran(scheduler: Scheduler, batch: Batch | None, now: float) -> Sequence[QueuedUnit]:
    """Check a batch, and have it run."""
    assert batch is not None, "an idle device got no batch though units were queued"
    costs = [queued.unit.cost for queued in batch.units]
    assert costs, "an empty batch"
    assert len(costs) == 1 or sum(costs) <= LIMITS.max_cost, f"a batch of cost {sum(costs)} above {LIMITS.max_cost}"
    requests = {queued.request for queued in batch.units}
    assert len(requests) <= LIMITS.max_requests, f"a batch of {len(requests)} requests, allowed {LIMITS.max_requests}"
    assert costs == sorted(costs), f"the costs {costs} are not cheapest first"
    assert len({queued.unit.key for queued in batch.units}) == 1, "a batch mixes inference keys"
    assert {queued.request.model for queued in batch.units} == {batch.model}, "a batch mixes models"
    assert batch.cost == sum(costs), f"batch.cost says {batch.cost}, its units say {sum(costs)}"
    scheduler.ran(batch, BATCH_S, now + BATCH_S)
    return batch.units


def _drained(scheduler: Scheduler, models: Sequence[Model], now: float, expected: int) -> list[QueuedUnit]:
    """Take all that is queued, which is `expected` units at most."""
    ran: list[QueuedUnit] = []
    while waiting := sum(scheduler.waiting(model)[0] for model in models):
        assert len(ran) < expected, f"all {expected} units ran and waiting says {waiting} more"
        ran += _ran(scheduler, scheduler.next(now), now)
        now += BATCH_S
        left = sum(scheduler.waiting(model)[0] for model in models)
        assert left < waiting, "next gave a batch and waiting did not fall"
    assert [scheduler.waiting(model)[1] for model in models] == [0] * len(models), (
        "nothing waits, and its cost is not 0"
    )
    assert scheduler.next(now) is None, "next gives a batch from an empty queue"
    return ran


def every_unit_runs_once_and_within_the_limits(factory: SchedulerFactory) -> None:
    """Nothing admitted is lost or duplicated; a batch has one model and key, keeps its limits and is sorted by cost."""
    for seed in SEEDS:
        traffic, now = Traffic(seed), 0.0
        scheduler = _made(factory, *traffic.models)
        queued: list[QueuedUnit] = []
        ran: list[QueuedUnit] = []
        for turn in range(30):
            units = traffic.request()
            if _add(scheduler, units, now):
                queued += units
            if turn > 9 and len(queued) > len(ran):
                ran += _ran(scheduler, scheduler.next(now), now)
                now += BATCH_S
        ran += _drained(scheduler, traffic.models, now, len(queued) - len(ran))
        assert len(ran) == len(queued), f"{len(queued)} units were queued and {len(ran)} ran"
        assert set(map(id, ran)) == set(map(id, queued)), "the units that ran are not those queued"


def cancelled_units_never_run(factory: SchedulerFactory) -> None:
    """`cancel` drops all queued units of a request and returns their number; the counts follow."""
    for seed in SEEDS:
        traffic = Traffic(seed)
        scheduler = _made(factory, *traffic.models)
        requests = [units for units in (traffic.request() for _ in range(12)) if _add(scheduler, units, 0.0)]
        cancelled, kept = requests[::2], requests[1::2]
        for units in cancelled:
            dropped = scheduler.cancel(units[0].request)
            assert dropped == len(units), f"cancel dropped {dropped} of {len(units)} units"
            assert scheduler.cancel(units[0].request) == 0, "a second cancel drops units again"
        expected = [queued for units in kept for queued in units]
        cost = sum(scheduler.waiting(model)[1] for model in traffic.models)
        assert cost == sum(queued.unit.cost for queued in expected), "waiting counts cancelled units"
        ran = _drained(scheduler, traffic.models, 0.0, len(expected))
        assert set(map(id, ran)) == set(map(id, expected)), "cancelled units ran, or others were lost"


def late_requests_never_run(factory: SchedulerFactory) -> None:
    """`late` drops every unit of a request past its deadline and names the request, and no other."""
    traffic = Traffic(0)
    scheduler = _made(factory, *traffic.models)
    late, early, endless = traffic.request(1.0), traffic.request(3.0), traffic.request()
    for units in (late, early, endless):
        assert _add(scheduler, units, 0.0), "a request was refused before anything was measured"
    assert list(scheduler.late(0.5)) == [], "a request is late before its deadline"
    assert list(scheduler.late(2.0)) == [late[0].request], "late names other requests than the late one"
    left = early + endless
    ran = _drained(scheduler, traffic.models, 2.0, len(left))
    assert set(map(id, ran)) == set(map(id, left)), "a late unit ran, or others were lost"


def an_idle_device_never_waits(factory: SchedulerFactory) -> None:
    """With an idle device a single queued unit is a batch, whatever ran before."""
    model = Model("test/model")
    scheduler = _made(factory, model)
    for now in (5.0, 5.0, 7.0):
        unit = QueuedUnit(Unit(0, 1, "a", payload=None), Asked("one", model))
        assert _add(scheduler, [unit], now), "a request was refused by an idle device"
        assert tuple(_ran(scheduler, scheduler.next(now), now)) == (unit,), "the batch is not the unit that waits"


def nothing_starves(factory: SchedulerFactory) -> None:
    """A request runs although others keep coming, no more of each client than its own has."""
    for seed in SEEDS:
        traffic, now = Traffic(seed), 0.0
        scheduler = _made(factory, *traffic.models)
        ahead = sum(len(units) for units in (traffic.request() for _ in range(5)) if _add(scheduler, units, now))
        patient = QueuedUnit(
            Unit(0, LIMITS.max_cost, "a", payload=None), Asked("patient", traffic.models[0], "patient")
        )
        assert _add(scheduler, [patient], now), "a request was refused before anything was measured"
        bound = 8 * (ahead + 4)
        for turn in count():
            assert turn < bound, f"a unit with {ahead} ahead of it, of three clients, waits for {turn} batches"
            _add(scheduler, traffic.request(), now)
            if patient in _ran(scheduler, scheduler.next(now), now):
                break
            now += BATCH_S


def _bounded(check: Callable[[SchedulerFactory], None]) -> Callable[[SchedulerFactory], None]:
    """Have a check fail that does not come to an end."""

    @wraps(check)
    def bounded(factory: SchedulerFactory) -> None:
        try:
            Calls().within(check.__name__, CHECK_LIMIT_S, lambda: check(factory))
        except HungError as error:
            raise AssertionError(f"a method of the scheduler hangs, or is far too slow: the check {error}") from None

    return bounded


SCHEDULER_CHECKS: Sequence[Callable[[SchedulerFactory], None]] = tuple(
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
