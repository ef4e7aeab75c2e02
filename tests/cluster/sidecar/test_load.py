"""What a worker holds: when it is saturated, and the rate at which it answers, in virtual time."""

from __future__ import annotations

import pytest
from sie_cluster.messages.work import WorkHead
from sie_cluster.sidecar.load import Load

HEAD = WorkHead("r", 0, 1, 1, "encode", "org/a", b"k" * 16, 0, 1, 10, "_INBOX.a.1")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_worker_is_saturated_from_nine_tenths_of_what_it_takes_until_seven_tenths() -> None:
    told: list[bool] = []
    load = Load(50, 100, lambda: told.append(load.saturated))
    at = []
    for _ in range(10):
        load.take(HEAD)
        at.append(load.saturated)
    assert at == [False] * 8 + [True] * 2
    at = []
    for _ in range(10):
        load.leave(HEAD, answered=True)
        at.append(load.saturated)
    assert at == [True] * 3 + [False] * 7
    assert told == [True, False]
    assert (load.cost, dict(load.of_model)) == (0, {})


def test_the_rate_is_that_of_a_worker_with_more_than_it_can_run() -> None:
    clock = Clock()
    load = Load(50, 1000, lambda: None, clock)
    for _ in range(100):  # one after the other: it could answer far more
        load.take(HEAD)
        clock.now += 1.0
        load.leave(HEAD, answered=True)
    assert load.cost_per_s is None
    for _ in range(20):
        load.take(HEAD)
    for _ in range(60):
        clock.now += 0.1
        load.leave(HEAD, answered=True)
        load.take(HEAD)
    assert load.cost_per_s == pytest.approx(100.0)


def test_the_rate_of_a_batch_of_many_is_that_of_all_of_them_from_the_first_measurement_on() -> None:
    clock = Clock()
    load = Load(50, 1000, lambda: None, clock)
    for _ in range(40):
        load.take(HEAD)
    rates = []
    for _ in range(4):
        clock.now += 2.0
        for _ in range(20):
            load.leave(HEAD, answered=True)
            load.take(HEAD)
            rates.append(load.cost_per_s)
    assert rates == pytest.approx([None] * 20 + [100.0] * 60)


def test_a_small_batch_is_not_taken_for_what_the_large_one_after_it_was_worked_at() -> None:
    """The first of 32 clients at once has a batch of its own, and the others the next one."""
    clock = Clock()
    load = Load(50, 1000, lambda: None, clock)
    for _ in range(40):
        load.take(HEAD)
    rates = []
    for batch, seconds in ((1, 0.1), (31, 3.1), (31, 3.1), (1, 0.1), (31, 3.1)):
        clock.now += seconds
        for _ in range(batch):
            load.leave(HEAD, answered=True)
            load.take(HEAD)
            rates.append(load.cost_per_s)
    assert rates == pytest.approx([None] * 32 + [100.0] * 63)


def test_all_of_a_batch_counts_though_less_waits_once_it_is_answered() -> None:
    clock = Clock()
    load = Load(50, 1000, lambda: None, clock)
    rates = []
    for _ in range(5):
        for _ in range(8):  # clients that ask again once they are answered
            load.take(HEAD)
        clock.now += 2.0
        for _ in range(8):
            load.leave(HEAD, answered=True)
        rates.append(load.cost_per_s)
        clock.now += 0.001
    assert rates == pytest.approx([None, *[40.0] * 4])


def test_answers_in_quick_succession_count_from_when_more_waits_than_can_be_run() -> None:
    clock = Clock()
    load = Load(50, 10_000, lambda: None, clock)
    load.take(HEAD)
    load.leave(HEAD, answered=True)  # nothing else waits yet
    for _ in range(500):
        load.take(HEAD)
    rates = []
    for _ in range(400):
        clock.now += 0.01
        load.leave(HEAD, answered=True)
        rates.append(load.cost_per_s)
    assert rates[-1] is not None
    assert [rate for rate in rates if rate is not None] == pytest.approx([1000.0] * 201)


def test_work_that_waits_for_a_load_or_is_handed_back_is_no_part_of_the_rate() -> None:
    clock = Clock()
    load = Load(50, 1000, lambda: None, clock)
    cold = HEAD._replace(model="org/cold", cost=500)
    load.take(cold)
    load.waits_for_load(cold, waits=True)
    clock.now += 100.0
    load.take(HEAD)
    load.leave(HEAD, answered=False)
    load.waits_for_load(cold, waits=False)
    assert load.cost_per_s is None
    load.leave(cold, answered=False)
    assert load.cost == 0
