"""What is before a request that is judged by a guess, in virtual time, and what the late ones teach."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from sie_core.batching.cost_model import MARGIN
from sie_core.batching.sharing.demand import Demand
from sie_core.contracts import InferenceError
from tests.engine.device_time import DeviceTime, Model

COST = 130
WHOLE = [COST] * 40
"""What runs for a quarter of a second."""


def runs_s(time: DeviceTime, model: Model) -> float:
    """Return how long that is measured to take."""
    return time.scheduler.admission._drains[model].measured_s(sum(WHOLE))


@pytest.fixture
def time() -> DeviceTime:
    return DeviceTime()


@pytest.fixture
def model(time: DeviceTime) -> Model:
    """Return a model of which a batch was measured and two requests wait."""
    made = time.add(Model())
    time.at(0.0, lambda: time.ask(made, WHOLE))
    time.run(1.0)
    for _ in range(2):
        assert time.ask(made, WHOLE).error is None
    return made


def demand(time: DeviceTime, timeout_s: float, client: Any = None, weight: float = 1.0) -> Demand:
    who = (client or object(), weight)
    return Demand(who, object(), time.now + timeout_s, sum(WHOLE), sum(WHOLE), prepared=False)


def passes(time: DeviceTime, model: Model, asked: Demand) -> bool:
    try:
        time.queue.admit(model, asked)
    except InferenceError:
        return False
    return True


def prepare(time: DeviceTime, model: Model, count: int, client: Any = None) -> None:
    for _ in range(count):
        time.queue.begin_preparing(model, demand(time, 9.0, client))


def test_who_is_being_prepared_is_before_who_is_judged_by_a_guess(time: DeviceTime, model: Model) -> None:
    assert passes(time, model, demand(time, 1.0))
    prepare(time, model, 2)
    assert not passes(time, model, demand(time, 1.0))


def test_who_is_prepared_already_or_on_a_thread_is_behind_nobody_who_came_later(time: DeviceTime, model: Model) -> None:
    prepare(time, model, 2)
    for stage in ("prepared", "begun"):
        asked = demand(time, 1.0)
        setattr(asked, stage, True)
        assert passes(time, model, asked)


def test_who_is_judged_as_prepared_or_ended_is_before_nobody(time: DeviceTime, model: Model) -> None:
    coming = [demand(time, 9.0) for _ in range(2)]
    for each in coming:
        time.queue.begin_preparing(model, each)
    time.queue.end_preparing(model, coming[0])
    coming[1].prepared = True
    time.queue.admit(model, coming[1])
    assert passes(time, model, demand(time, 1.0))


def test_a_clients_own_requests_in_preparation_are_before_its_next_one(time: DeviceTime, model: Model) -> None:
    asked = demand(time, 1.0, "client")
    prepare(time, model, 8, "client")
    assert not passes(time, model, asked)


def test_what_a_client_has_waiting_counts_once(time: DeviceTime, model: Model) -> None:
    assert time.ask(model, WHOLE, client="client").error is None
    assert passes(time, model, demand(time, 1.02 * MARGIN * 4 * runs_s(time, model), "client"))


@pytest.mark.parametrize("guessed", [False, True])
def test_who_passed_its_guess_is_not_refused_as_it_was_a_little_low(
    time: DeviceTime, model: Model, guessed: bool
) -> None:
    asked = demand(time, 1.01 * (1 + MARGIN) / 2 * 3 * runs_s(time, model))
    asked.prepared, asked.guessed = True, guessed
    assert passes(time, model, asked) is guessed


def test_a_queue_that_is_removed_forgets_who_was_being_prepared(time: DeviceTime) -> None:
    model = time.add(Model())
    prepare(time, model, 2)
    time.queue.remove_model(model)
    assert not time.scheduler.admission._in_preparation


def test_a_bulk_request_is_refused_where_those_who_come_later_are_served_before_it(time: DeviceTime) -> None:
    model, draw, bulk = time.add(Model(price_s=3e-5)), Random(1), []
    moment = 0.0
    while moment < 20.0:
        moment += draw.expovariate(1.3 / 0.033)
        time.at(moment, lambda: time.ask(model, [COST] * 8, 0.5))
    for number in range(100):
        time.at(5.0 + number / 7, lambda: bulk.append(time.ask(model, [COST] * 8, 2.0, weight=0.25)))
    time.run(30.0)
    admitted = [each for each in bulk if each.error is None or each.error.code != "QUEUE_FULL"]
    assert len(admitted) <= 0.5 * len(bulk)  # there is no room for any; all were admitted, and late


def allowance_s(time: DeviceTime, model: Model) -> float:
    return time.scheduler.admission._lateness[model].allowance_s(9.0)


def measured(time: DeviceTime, model: Model) -> None:
    """Have batches run that leave others waiting."""
    for _ in range(4):
        time.ask(model, WHOLE)
    time.at(time.now, lambda: None)
    time.run(time.now + 2.0)


def test_who_runs_too_long_is_late(time: DeviceTime, model: Model) -> None:
    measured(time, model)
    assert allowance_s(time, model) == 0.0
    model.pace = lambda: 4.0
    late = time.ask(model, [COST] * 20, 0.4)
    time.ask(model, WHOLE)  # waits when it ends
    time.at(time.now, lambda: None)
    time.run(time.now + 9.0)
    assert late.error is None
    assert allowance_s(time, model) > 0.0


def test_who_is_given_up_at_its_deadline_is_late(time: DeviceTime, model: Model) -> None:
    measured(time, model)
    flights = [time.ask(model, WHOLE, 9.0) for _ in range(2)]
    flights[0].error = InferenceError("DEADLINE_EXCEEDED", "its timer went off")
    time.queue.cancel(flights[0])  # type: ignore[arg-type]
    assert allowance_s(time, model) > 0.0


def test_a_deadline_that_nobody_can_meet_teaches_nothing(time: DeviceTime, model: Model) -> None:
    measured(time, model)
    for _ in range(20):
        assert time.ask(model, [COST], 0.001).error is None  # it is tried, as nothing else waits
        time.at(time.now, lambda: None)
        time.run(time.now + 1.0)
    assert allowance_s(time, model) == 0.0
