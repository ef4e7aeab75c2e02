"""How long batches run is learned by their cost: a stable table, whatever the mix of batches."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sie_core.batching import SpeedTable

OVERHEAD_S, PRICE_S = 0.002, 0.00005


def seconds(cost: float) -> float:
    return OVERHEAD_S + PRICE_S * cost


def learned(*costs: int) -> SpeedTable:
    table = SpeedTable()
    for cost in costs:
        table.record(cost, seconds(cost))
    return table


def test_nothing_is_predicted_before_the_first_measurement() -> None:
    assert SpeedTable().predict(100) is None
    assert SpeedTable().within(1.0) == SpeedTable().drain_s(100, 50) == 0.0


@pytest.mark.parametrize("cost", [10, 700, 5000])
def test_between_measured_costs_the_seconds_are_interpolated(cost: int) -> None:
    assert learned(10, 100, 1000, 10_000).predict(cost) == pytest.approx(seconds(cost), rel=0.01)


def test_equal_batches_teach_no_overhead_that_is_not_there() -> None:
    table = learned(*[10], *[5000] * 120)
    assert table.overhead_s == pytest.approx(OVERHEAD_S, rel=0.05)
    assert table.predict(2500) == pytest.approx(seconds(2500), rel=0.05)


def test_above_the_largest_measured_batch_the_seconds_grow_with_the_cost() -> None:
    assert learned(100).predict(400) == pytest.approx(4 * seconds(100))


def test_one_slow_batch_among_quick_ones_changes_nothing() -> None:
    table = learned(*[100] * 5)
    table.record(100, 3.0)
    assert table.predict(100) == pytest.approx(seconds(100))


def test_a_slow_first_batch_says_nothing_of_larger_ones_and_less_of_its_own_size() -> None:
    table = SpeedTable()
    table.record(10, 3.0)
    for _ in range(3):
        table.record(1000, seconds(1000))
    assert (table.predict(10) or 0.0) <= seconds(1000)
    assert table.overhead_s <= seconds(1000)


def test_a_lasting_change_of_pace_is_learned_within_as_many_batches_as_count() -> None:
    table = learned(*[100] * 50)
    for _ in range(5):
        table.record(100, 1.0)
    assert table.predict(100) == pytest.approx(1.0)


def test_a_cost_that_is_drained_runs_at_the_pace_of_full_batches() -> None:
    table = learned(10, 1000)
    assert table.drain_s(10_000, 1000) == pytest.approx(10 * seconds(1000))
    assert table.drain_s(500, 1000) == table.predict(500)


@given(batches=st.lists(st.tuples(st.integers(1, 10**6), st.floats(1e-5, 100.0)), min_size=1, max_size=60))
def test_predictions_never_fall_with_the_cost_and_what_is_within_a_time_takes_no_longer(
    batches: list[tuple[int, float]],
) -> None:
    table, random = SpeedTable(), Random(1)
    for cost, took in batches:
        table.record(cost, took)
    costs = sorted(random.uniform(1, 2e6) for _ in range(50))
    predicted = [table.predict(cost) or 0.0 for cost in costs]
    assert all(less <= more * (1 + 1e-9) for less, more in pairwise(predicted))
    for limit in (0.001, 0.05, 1.0, 50.0):
        assert (table.predict(min(1e12, table.within(limit))) or 0.0) <= max(limit, table.overhead_s) * (1 + 1e-6)
