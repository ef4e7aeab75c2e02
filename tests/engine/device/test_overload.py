"""More requests than the device can answer, in virtual time: who is answered in time, who is refused, who returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import copy, deepcopy
from functools import partial
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sie_core.batching.sharing.demand import Demand
from sie_core.contracts import InferenceError
from tests.engine.device_time import OVERHEAD_S, PRICE_S, Asked, DeviceTime, Model

COST = 130
"""Of a text of a hundred words."""
EQUAL, MIXED = {8: 1.0}, {1: 0.5, 8: 0.3, 32: 0.2}
"""How many texts the requests have, and how often."""
SECONDS = 25.0


def capacity(model: Model) -> float:
    """Texts a second that the device answers in full batches of a quarter of a second."""
    full = (0.25 - OVERHEAD_S) / model.price_s
    return full / 0.25 / COST


def overload(
    times: float, timeout_s: float, sizes: dict[int, float] = EQUAL, *, obey: bool = False, varying: float = 0.0
) -> tuple[float, list[Asked], list[Asked]]:
    """Ask at so many times the capacity; return it, all that was asked, and what was asked again as told.

    `varying` is the standard deviation of what runs take, as a part of what they take.
    """
    time, model, draw, runs = DeviceTime(), Model(), Random(1), Random(2)
    model.pace = lambda: runs.lognormvariate(0.0, varying)
    time.add(model)
    first: list[Asked] = []
    again: list[Asked] = []

    def arrive() -> None:
        token = object()
        costs = [COST] * draw.choices(list(sizes), list(sizes.values()))[0]
        asked = time.ask(model, costs, timeout_s, token=token)
        first.append(asked)
        if obey and asked.error is not None and asked.error.code == "QUEUE_FULL":
            assert asked.error.retry_after_s is not None
            come_back = time.now + asked.error.retry_after_s
            time.at(come_back, lambda: again.append(time.ask(model, costs, timeout_s, token=token)))

    moment = 0.0
    while moment < SECONDS:
        moment += draw.expovariate(times * capacity(model) / sum(size * share for size, share in sizes.items()))
        time.at(moment, arrive)
    time.run(20 * SECONDS)
    return capacity(model), first, again


def full_answer(time: DeviceTime, model: Model, demand: Demand) -> InferenceError | None:
    """Judge a request in full, without consequences."""
    scheduler, admission = copy(time.scheduler), copy(time.scheduler.admission)
    ahead_s = time.queue._on_device.left_s(admission.left_s, time.now)
    for state in ("_promises", "_inflow", "_short_to"):
        setattr(admission, state, deepcopy(getattr(admission, state), {id(model): model}))
    scheduler.admission = admission
    return raised(lambda: scheduler.admit(model, demand, time.now, ahead_s))


def raised(call: Callable[[], None]) -> InferenceError | None:
    try:
        call()
    except InferenceError as error:
        return error
    return None


ASKED = st.tuples(st.floats(0.0, 0.03), st.integers(1, 40), st.sampled_from([None, 0.1, 0.5, 2.0]), st.integers(0, 30))
"""Seconds since the one before, texts, the deadline, and what tells it from others of as many texts."""


@settings(deadline=None, max_examples=25)
@given(asked=st.lists(ASKED, min_size=30, max_size=80), late_s=st.floats(-0.3, 1.0))
def test_who_is_refused_early_is_refused_in_full_and_who_was_promised_room_is_let_pass(
    asked: list[tuple[float, int, float | None, int]], late_s: float
) -> None:
    time, model, seen = DeviceTime(max_queued_cost=60_000), Model(), Counter[str]()
    time.add(model)

    def arrive(texts: int, timeout_s: float | None, number: int) -> None:
        token, costs = (number, texts), [COST] * texts
        deadline = None if timeout_s is None else time.now + timeout_s

        def demand() -> Demand:
            return Demand((object(), 1.0), token, deadline, sum(costs), sum(costs), prepared=False)

        promised = time.scheduler.admission._promises.is_due(token, time.now)
        whole = full_answer(time, model, demand())
        early = raised(lambda: time.queue.admit(model, demand(), unless_promised=True))
        seen["promised"] += promised
        if early is None:
            assert promised or whole is None
            assert str(full_answer(time, model, demand())) == str(whole)  # nothing has changed
            time.ask(model, costs, timeout_s, token=token)
            return
        seen["refused"] += 1
        assert not promised
        assert whole is not None
        assert (early.message, early.retry_after_s) == (whole.message, whole.retry_after_s)
        if early.retry_after_s is not None and early.retry_after_s < 20:
            time.at(time.now + early.retry_after_s + late_s, partial(arrive, texts, timeout_s, number))

    moment = 0.0
    for pause_s, *what in [*asked, *ALWAYS]:
        moment += pause_s
        time.at(moment, partial(arrive, *what))
    time.run(moment + 10.0)
    assert seen["refused"]
    assert seen["promised"] or late_s < -0.1


ALWAYS = [(0.0, 40, 0.5, number) for number in range(20)]
"""More than any queue takes."""


def in_time(asked: list[Asked]) -> list[Asked]:
    return [each for each in asked if each.ended is not None and each.ended <= (each.deadline or 0.0)]


@pytest.mark.parametrize("times", [2, 3])
@pytest.mark.parametrize("timeout_s", [0.5, 2.0, 10.0])
def test_nine_tenths_of_the_capacity_are_answers_in_time(times: float, timeout_s: float) -> None:
    most, asked, _ = overload(times, timeout_s)
    assert sum(each.size for each in in_time(asked)) >= 0.9 * most * SECONDS
    late = [each for each in asked if each.error is not None and each.error.code == "DEADLINE_EXCEEDED"]
    assert len(late) <= 0.01 * len(asked)  # who cannot be answered is told at once


@pytest.mark.parametrize("times", [2, 3])
@pytest.mark.parametrize("timeout_s", [2.0, 10.0])
def test_requests_of_many_sizes_are_answered_in_time_as_well(times: float, timeout_s: float) -> None:
    most, asked, _ = overload(times, timeout_s, MIXED)
    while_asked = [each for each in in_time(asked) if each.ended is not None and each.ended <= SECONDS]
    assert sum(each.size for each in while_asked) >= 0.9 * most * SECONDS
    late = [each for each in asked if each.error is not None and each.error.code == "DEADLINE_EXCEEDED"]
    assert len(late) <= 0.02 * len(asked)


@pytest.mark.parametrize("times", [2, 3])
def test_no_run_is_in_vain_although_runs_vary_and_outputs_are_finished_after_them(times: float) -> None:
    finish_s = 0.006
    most, asked, again = overload(times, 0.5, obey=True, varying=0.05)
    vain = [each for each in asked + again if each.ended is not None and each.ended + finish_s > (each.deadline or 0.0)]
    assert sum(each.size for each in vain) <= 0.005 * most * SECONDS


@pytest.mark.parametrize("times", [2, 3])
def test_half_a_second_leaves_room_for_full_batches_and_few_who_were_admitted_are_late(times: float) -> None:
    seconds, time, model, draw, runs = 60.0, DeviceTime(), Model(price_s=3e-5), Random(1), Random(2)
    time.add(model)
    model.pace = lambda: runs.lognormvariate(0.0, 0.1)
    asked: list[Asked] = []

    def arrive() -> None:
        asked.append(time.ask(model, [COST - 3 + draw.randint(0, 6) for _ in range(8)], 0.5))

    moment = 0.0
    while moment < seconds:
        moment += draw.expovariate(times * capacity(model) / 8)
        time.at(moment, arrive)
    time.run(seconds)
    admitted = [each for each in asked if each.error is None or each.error.code != "QUEUE_FULL"]
    ended = [each for each in admitted if each.ended is not None or each.error is not None]
    assert len(ended) - len(in_time(asked)) <= 0.02 * len(ended)
    assert sum(run.batch.cost for run in time.batches) >= 4000 * len(time.batches)
    assert sum(each.size for each in in_time(asked)) >= 0.97 * capacity(model) * seconds


@pytest.mark.parametrize("sizes", [EQUAL, MIXED], ids=["equal", "mixed"])
@pytest.mark.parametrize("timeout_s", [0.5, 2.0, 10.0])
def test_who_comes_back_when_told_to_is_answered_in_time(timeout_s: float, sizes: dict[int, float]) -> None:
    _, _, again = overload(2, timeout_s, sizes, obey=True)
    assert len(again) > 100
    assert len(in_time(again)) >= 0.9 * len(again)


def test_a_deadline_is_judged_by_what_clients_of_other_weights_have_until_then() -> None:
    time = DeviceTime()
    model = time.add(Model())
    time.at(0.0, lambda: time.ask(model, [COST] * 40))
    time.run(1.0)
    for weight, count, texts in ((0.25, 40, 8), (4.0, 10, 1)):
        for _ in range(count):
            time.ask(model, [COST] * texts, weight=weight)
    asked = time.ask(model, [COST] * 2, 0.45)  # 13 ms, beside 65 ms of weight 40, and 2 s of weight 10
    time.at(1.0, lambda: None)
    time.run(5.0)
    assert in_time([asked]) == [asked]


def test_of_large_requests_with_a_deadline_one_is_answered_after_the_other() -> None:
    time = DeviceTime()
    model = time.add(Model())
    asked = [time.ask(model, [COST] * 40, 1.2) for _ in range(4)]  # each takes a quarter of a second
    time.at(0.0, lambda: None)
    time.run(10.0)
    ended = [each.ended or 0.0 for each in asked]
    assert all(after - before > 0.2 for before, after in pairwise(ended))


def test_a_device_with_nothing_to_do_tries_even_what_it_has_been_too_slow_for() -> None:
    time = DeviceTime()
    model = time.add(Model())
    model.price_s = 0.01  # at first, as an import would make it
    time.at(0.0, lambda: time.ask(model, [100]))
    answers: list[Asked] = []
    for number in range(1, 4):
        time.at(10.0 * number, lambda: answers.append(time.ask(model, [100], 0.5)))
    time.at(5.0, lambda: setattr(model, "price_s", PRICE_S))
    time.run(60.0)
    assert len(in_time(answers)) == 3


def test_a_short_request_beside_a_large_one_waits_for_a_short_batch() -> None:
    time = DeviceTime()
    model, other = time.add(Model()), time.add(Model("test/other"))
    short: list[Asked] = []
    for start in range(8):
        time.at(float(start), lambda: time.ask(model, [256] * 512))
    for number in range(400):
        asks = other if number % 2 else model
        time.at(1.0 + number / 50, lambda asks=asks: short.append(time.ask(asks, [10])))
    time.run(200.0)
    waits = sorted(each.ended - each.arrived for each in short[50:] if each.ended is not None)
    assert waits[len(waits) // 2] < 0.03
    assert waits[-1] < 0.2
    large = [run.batch.cost for run in time.batches if run.started > 20.0 and run.model is model]
    assert max(large) > 4500  # nobody is held up any more


@pytest.mark.parametrize("run_s", [0.012, 0.03])
@pytest.mark.parametrize("same", [True, False], ids=["the same model", "another model"])
def test_a_short_request_beside_too_many_larger_ones_waits_for_a_layer_of_them(run_s: float, same: bool) -> None:
    time = DeviceTime(layers=6)
    model = time.add(Model(price_s=run_s / 600))
    other = model if same else time.add(Model("test/other", price_s=run_s / 600))
    short: list[Asked] = []
    draw = Random(1)
    moment = 0.0
    while moment < 20.0:
        moment += draw.expovariate(1.5 / run_s)
        time.at(moment, lambda: time.ask(model, [75] * 8, 2.0))
    for number in range(400):
        time.at(number / 20, lambda: short.append(time.ask(other, [10])))
    time.run(40.0)
    waits = sorted(each.ended - each.arrived for each in short[20:] if each.ended is not None)
    assert len(waits) == len(short[20:])
    assert waits[len(waits) // 2] < 0.02
    assert waits[-1] < 0.1


def test_models_share_the_device_by_who_waits_for_them() -> None:
    time = DeviceTime(10**8)
    few, many = time.add(Model("test/few")), time.add(Model("test/many"))
    time.at(0.0, lambda: time.ask(few, [250] * 2000))
    for _ in range(3):
        time.at(0.0, lambda: time.ask(many, [250] * 2000))
    time.run(20.0)
    seconds = Counter[str]()
    for run in time.batches:
        seconds[run.model.id] += run.batch.cost
    assert seconds["test/many"] == pytest.approx(3 * seconds["test/few"], rel=0.15)


def test_a_priority_is_a_share_and_no_right_of_way() -> None:
    time = DeviceTime(10**8)
    model = time.add(Model())
    asked = {weight: time.ask(model, [250] * 4000, weight=weight) for weight in (4.0, 1.0, 0.25)}
    time.at(0.0, lambda: None)
    time.run(20.0)
    ran = {weight: 4000 - each.left for weight, each in asked.items()}
    assert ran[4.0] == pytest.approx(4 * ran[1.0], rel=0.15)
    assert ran[1.0] == pytest.approx(4 * ran[0.25], rel=0.25)


def test_a_small_request_finds_room_in_a_queue_that_a_flood_has_filled() -> None:
    time = DeviceTime(max_queued_cost=10_000)
    model = time.add(Model())
    flood = [time.ask(model, [250] * 20, client="flood") for _ in range(5)]
    assert [each.error is None for each in flood] == [True, True, False, False, False]
    assert flood[2].error is not None
    assert "SIE_MAX_QUEUED_COST" in flood[2].error.message
    assert time.ask(model, [250] * 2, client="another").error is None
    assert time.ask(model, [250] * 2).error is None
