"""More requests than the device can answer, in virtual time: who is answered in time, and who is refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from random import Random
from typing import Any

import pytest

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
    times: float, timeout_s: float, sizes: dict[int, float], clients: int | None, *, impossible: bool = False
) -> tuple[float, list[Asked]]:
    """Ask at so many times the capacity; return it, and all that was asked.

    `clients` is how many ask, None for requests of nobody known. With `impossible` one more client asks 20 times a
    second for an answer within four milliseconds.
    """
    time, model, draw, runs = DeviceTime(), Model(), Random(1), Random(2)
    model.pace = lambda: runs.lognormvariate(0.0, 0.05)
    time.add(model)
    asked: list[Asked] = []

    def arrive() -> None:
        costs = [COST] * draw.choices(list(sizes), list(sizes.values()))[0]
        asked.append(time.ask(model, costs, timeout_s, None if clients is None else str(draw.randrange(clients))))

    moment = 0.0
    while moment < SECONDS:
        moment += draw.expovariate(times * capacity(model) / sum(size * share for size, share in sizes.items()))
        time.at(moment, arrive)
    for number in range(int(20 * SECONDS) if impossible else 0):
        time.at(number / 20, lambda: time.ask(model, [COST], 0.004, "impossible"))
    time.run(2 * SECONDS)
    return capacity(model), asked


def in_time(asked: list[Asked]) -> list[Asked]:
    return [each for each in asked if each.ended is not None and each.ended <= (each.deadline or 0.0)]


def late(asked: list[Asked]) -> float:
    """Return the part of those who were admitted who were not answered in time."""
    admitted = [each for each in asked if each.admitted]
    return 1 - len(in_time(admitted)) / len(admitted)


@contextmanager
def counted() -> Iterator[list[int]]:
    """Count the steps of the interpreter meanwhile."""
    count = [0]

    def step(frame: Any, event: str, argument: Any) -> Any:
        count[0] += 1
        return step

    sys.settrace(step)
    try:
        yield count
    finally:
        sys.settrace(None)


@pytest.mark.parametrize("times", [2, 3])
@pytest.mark.parametrize("timeout_s", [0.5, 2.0, 10.0])
@pytest.mark.parametrize("clients", [None, 1, 20])
@pytest.mark.parametrize("sizes", [EQUAL, MIXED], ids=["equal", "mixed"])
def test_most_of_the_capacity_is_answers_in_time_and_few_who_were_admitted_are_late(
    times: float, timeout_s: float, clients: int | None, sizes: dict[int, float]
) -> None:
    most, asked = overload(times, timeout_s, sizes, clients)
    while_asked = [each for each in in_time(asked) if each.ended is not None and each.ended <= SECONDS]
    # A request of 32 texts takes two fifths of half a second, and shorter ones come meanwhile.
    least = 0.8 if sizes is MIXED and timeout_s == 0.5 else 0.85
    assert sum(each.size for each in while_asked) >= least * most * SECONDS
    assert late(asked) <= 0.05


def test_a_client_with_impossible_deadlines_changes_nobody_elses_refusals() -> None:
    shares = []
    for impossible in (False, True):
        _, asked = overload(0.85, 0.35, EQUAL, 20, impossible=impossible)
        shares.append(sum(not each.admitted for each in asked) / len(asked))
    assert abs(shares[1] - shares[0]) <= 0.01


def test_of_large_requests_with_a_deadline_one_is_answered_after_the_other() -> None:
    time = DeviceTime()
    model = time.add(Model())
    asked = [time.ask(model, [COST] * 40, 1.4) for _ in range(4)]  # each takes a quarter of a second
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


def test_a_burst_that_is_over_refuses_nobody_who_comes_afterwards() -> None:
    time = DeviceTime()
    model = time.add(Model())
    for client in range(40):
        time.at(0.0, lambda client=client: [time.ask(model, [COST] * 8, client=str(client)) for _ in range(2)])
    answers: list[Asked] = []
    for number in range(40):
        for client in ("first", "second"):
            time.at(60.0 + number, lambda client=client: answers.append(time.ask(model, [COST], 0.05, client)))
    time.run(120.0)
    assert len(in_time(answers)) == 80


def test_one_slow_batch_keeps_no_model_from_being_tried_beside_a_busy_one() -> None:
    time = DeviceTime()
    rare, busy = time.add(Model("test/rare")), time.add(Model("test/busy"))
    rare.price_s = 0.01  # at first, as an import would make it
    time.at(0.0, lambda: time.ask(rare, [100]))
    time.at(5.0, lambda: setattr(rare, "price_s", PRICE_S))
    answers: list[Asked] = []
    for number in range(1000):
        time.at(10.0 + number / 100, lambda: time.ask(busy, [COST] * 2, client="busy"))
    for number in range(20):
        time.at(11.001 + number / 3, lambda: answers.append(time.ask(rare, [100], 0.5)))
    time.run(60.0)
    assert len(in_time(answers)) == 20


def test_who_could_never_be_in_time_books_nobodys_time() -> None:
    def told(impossible: int) -> float | None:
        time = DeviceTime()
        model = time.add(Model())
        time.at(0.0, lambda: time.ask(model, [COST] * 8))
        time.run(1.0)
        time.ask(model, [COST] * 8)
        for _ in range(impossible):
            error = time.ask(model, [COST] * 80, 0.1).error
            assert error is not None
            assert "even alone" in error.message
        while (error := time.ask(model, [COST] * 8, 0.5).error) is None:
            pass
        return error.retry_after_s

    assert told(100) == told(0)


def test_thousands_of_late_requests_are_dropped_in_about_as_many_steps_each_as_tens() -> None:
    def steps(requests: int) -> float:
        time = DeviceTime(10**9)
        model = time.add(Model())
        time.at(0.0, lambda: time.ask(model, [COST]))
        time.run(1.0)
        for number in range(requests):  # half of one client; half run out, half are predicted to be late
            client = "one" if number % 4 < 2 else str(number)
            time.ask(model, [COST], 1e6 if number < 2 else 1e3, client).deadline = 2.0 if number % 2 else 2.1
        time.now = 2.0999
        with counted() as count:
            dropped = time.scheduler.late(time.now)
        assert len(dropped) == requests - 1
        return count[0] / requests

    assert steps(2000) < 2.5 * steps(50)


def test_who_is_refused_is_told_when_there_is_room_one_later_than_the_other() -> None:
    time = DeviceTime()
    model = time.add(Model())
    time.at(0.0, lambda: time.ask(model, [COST] * 8))
    time.run(1.0)
    refused = [error for _ in range(120) if (error := time.ask(model, [COST] * 20, 1.0).error) is not None]
    times = [error.retry_after_s or 0.0 for error in refused]
    assert len(times) > 100
    assert times == sorted(times)
    assert 1 <= times[0] <= 2
    # A hundred of them run for 13 s.
    assert 10 <= times[-1] <= 20
    assert "the deadline is in 1.00 s" in refused[0].message


def test_requests_that_were_left_no_time_are_dropped_before_they_run() -> None:
    time = DeviceTime()
    model = time.add(Model())
    for at in (0.0, 1.0):
        time.at(at, lambda: time.ask(model, [COST] * 8))
    asked: list[Asked] = []
    time.at(1.9, lambda: setattr(model, "price_s", 40 * PRICE_S))  # much slower than what is known
    time.at(2.0, lambda: asked.extend(time.ask(model, [COST] * 2, 0.5) for _ in range(16)))
    time.run(30.0)
    dropped = [each.error.code for each in asked if each.error is not None and each.admitted]
    assert dropped == ["DEADLINE_EXCEEDED"] * len(dropped)
    assert sum(each.began is None for each in asked if each.admitted) >= 5


def test_a_small_request_finds_room_in_a_queue_that_a_flood_has_filled() -> None:
    time = DeviceTime(max_queued_cost=10_000)
    model = time.add(Model())
    flood = [time.ask(model, [250] * 20, client="flood") for _ in range(5)]
    assert [each.error is None for each in flood] == [True, True, False, False, False]
    assert flood[2].error is not None
    assert "SIE_MAX_QUEUED_COST" in flood[2].error.message
    assert time.ask(model, [250] * 2, client="another").error is None
    assert time.ask(model, [250] * 2).error is None


def test_an_empty_queue_takes_a_request_of_any_size() -> None:
    time = DeviceTime(max_queued_cost=100)
    model, other = time.add(Model()), time.add(Model("test/other"))
    for each in (model, other):
        assert time.ask(each, [250] * 20).error is None


def test_to_judge_a_request_takes_about_as_many_steps_with_thousands_queued() -> None:
    def steps(requests: int) -> int:
        time = DeviceTime(10**9)
        model = time.add(Model())
        time.at(0.0, lambda: time.ask(model, [COST]))
        time.run(1.0)
        for number in range(requests):
            time.ask(model, [COST + number % 7] * 2, 1e6)
        with counted() as count:
            refused = time.ask(model, [COST], 0.001)
        assert refused.error is not None
        return count[0]

    assert steps(4000) < 2 * steps(40)
