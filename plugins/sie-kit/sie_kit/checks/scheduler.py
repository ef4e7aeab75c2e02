"""The checks of every scheduler, with seeded traffic and a simulated clock.

A check that fails raises AssertionError with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import Any

from sie_core.contracts import Batch, BatchLimits, InferenceError, Priority, QueuedUnit, QueueLimits, Scheduler, Unit
from sie_core.contracts.device.scheduling import SchedulerFactory
from sie_kit.outcomes import bounded

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
        assert scheduler.cancel(Asked("unknown", traffic.models[0])) == 0, "cancel drops units of nobody"
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


def a_full_queue_refuses_by_type(factory: SchedulerFactory) -> None:
    """Beyond the limit of the queue, `add` raises QUEUE_FULL and queues nothing; once there is room it takes again."""
    model = Model("test/model")
    scheduler = _made(factory, model)
    added: list[QueuedUnit] = []
    for number in range(2 * QUEUE.max_cost // 32):
        units = [QueuedUnit(Unit(0, 32, "a", payload=None), Asked(number, model, number % 3))]
        if not _add(scheduler, units, 0.0):
            break
        added += units
    else:
        raise AssertionError(f"twice the cost that the queue may hold, {QUEUE.max_cost}, was admitted")
    ran = _drained(scheduler, [model], 0.0, len(added))
    assert set(map(id, ran)) == set(map(id, added)), "what was refused ran, or what was admitted was lost"
    again = [QueuedUnit(Unit(0, 32, "a", payload=None), Asked("again", model))]
    assert _add(scheduler, again, 100.0), "it refuses although nothing waits"
    _drained(scheduler, [model], 100.0, 1)


def an_admitted_request_is_never_refused(factory: SchedulerFactory) -> None:
    """The units of a large request come in several calls of `add`: none is refused, none is lost."""
    model = Model("test/model")
    scheduler, request = _made(factory, model), Asked("large", model)
    units = [QueuedUnit(Unit(place, 60, "a", payload=None), request) for place in range(2 * QUEUE.max_cost // 60)]
    for start in range(0, len(units), 10):
        assert _add(scheduler, units[start : start + 10], 0.0), "units of an admitted request were refused"
    ran = _drained(scheduler, [model], 0.0, len(units))
    assert set(map(id, ran)) == set(map(id, units)), "units of one request that came later replaced earlier ones"


def a_failed_or_split_batch_is_noted(factory: SchedulerFactory) -> None:
    """`ran` takes a batch that failed, whose seconds are None, and the halves in which it was run again."""
    model = Model("test/model")
    scheduler = _made(factory, model)
    units = [QueuedUnit(Unit(0, 1, "a", payload=None), Asked(number, model)) for number in range(4)]
    for unit in units:
        assert _add(scheduler, [unit], 0.0), "a request was refused by an idle device"
    batch = scheduler.next(0.0)
    assert batch is not None, "an idle device got no batch though units were queued"
    parts = [replace(batch, units=(unit,), cost=unit.unit.cost) for unit in batch.units]
    for part, seconds in ((batch, None), *((part, BATCH_S) for part in parts)):
        try:
            scheduler.ran(part, seconds, 1.0)
        except Exception as error:
            what = "a failed batch" if seconds is None else "a part of a batch"
            raise AssertionError(f"ran raises {type(error).__name__} for {what}: {error}") from error
    _drained(scheduler, [model], 2.0, len(units) - len(batch.units))


def models_come_and_go(factory: SchedulerFactory) -> None:
    """A model is removed while another's units wait, and may be added again."""
    one, other = Model("test/one"), Model("test/other")
    scheduler = _made(factory, one, other)
    unit = QueuedUnit(Unit(0, 1, "a", payload=None), Asked("waits", other))
    assert _add(scheduler, [unit], 0.0), "a request was refused by an idle device"
    for _ in range(2):
        try:
            scheduler.remove_model(one)
            scheduler.add_model(one, LIMITS)
        except Exception as error:
            raise AssertionError(f"a model cannot go and come again: {type(error).__name__}: {error}") from error
    assert scheduler.waiting(other) == (1, 1), "a removed model took the units of another with it"
    _drained(scheduler, [one, other], 0.0, 1)


def it_is_asked_ahead_and_within(factory: SchedulerFactory) -> None:
    """`next` takes `ahead` and `within`; only a batch shorter than the one that runs may interrupt it."""
    model = Model("test/model")
    scheduler = _made(factory, model)
    small = QueuedUnit(Unit(0, 1, "a", payload=None), Asked("small", model))
    large = [QueuedUnit(Unit(place, 60, "a", payload=None), Asked("large", model)) for place in range(3)]
    assert _add(scheduler, [small], 0.0), "a request was refused by an idle device"
    running = scheduler.next(0.0)
    assert running is not None, "an idle device got no batch though units were queued"
    assert _add(scheduler, large, 0.0), "a request was refused by an idle device"
    short = replace(running, preemptible=True, predicted_s=BATCH_S)
    questions: tuple[dict[str, Any], ...] = ({"within": short}, {"ahead": True})
    for asked in questions:
        try:
            batch = scheduler.next(0.0, **asked)
        except TypeError as error:
            raise AssertionError(f"next takes no {' and '.join(asked)}: {error}") from error
        if "within" in asked:
            assert batch is None, f"a batch of cost {batch and batch.cost} would interrupt one of cost {running.cost}"
        elif batch is not None:
            scheduler.ran(batch, BATCH_S, 0.0)
    scheduler.ran(running, BATCH_S, 0.0)
    _drained(scheduler, [model], 1.0, len(large))


SCHEDULER_CHECKS: Sequence[Callable[[SchedulerFactory], None]] = tuple(
    map(
        bounded,
        (
            every_unit_runs_once_and_within_the_limits,
            cancelled_units_never_run,
            late_requests_never_run,
            an_idle_device_never_waits,
            nothing_starves,
            a_full_queue_refuses_by_type,
            an_admitted_request_is_never_refused,
            a_failed_or_split_batch_is_noted,
            models_come_and_go,
            it_is_asked_ahead_and_within,
        ),
    )
)
