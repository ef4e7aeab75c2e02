"""The learned cost model against costs whose law is known."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sie_core.batching import CostModel

SAMPLES = st.lists(st.tuples(st.integers(1, 10**6), st.floats(0, 1e4)), min_size=1, max_size=60)


def learned(samples):
    model = CostModel()
    for cost, seconds in samples:
        model.record(cost, seconds)
    return model


def test_nothing_is_predicted_before_the_first_measurement():
    assert CostModel().predict(10) is None


def test_one_measurement_is_thought_to_be_half_overhead_and_half_price():
    model = learned([(10, 0.02)])
    assert model.predict(10) == pytest.approx(0.02)
    assert model.predict(50) == pytest.approx(0.01 + 0.05)


@pytest.mark.parametrize(("overhead", "price"), [(0.005, 0.001), (0.0, 0.001), (0.05, 0.0001)])
def test_overhead_and_price_are_told_apart(overhead, price):
    draw = random.Random(0)
    model = learned([(cost, overhead + price * cost) for cost in (draw.randint(1, 400) for _ in range(40))])
    for cost in (1, 200, 1000):
        assert model.predict(cost) == pytest.approx(overhead + price * cost, rel=0.1, abs=overhead / 5 + 0.003)


def test_equal_costs_do_not_take_a_slope_from_noise():
    draw = random.Random(0)
    model = learned([(100 + draw.randint(-2, 2), 0.1 * draw.uniform(0.5, 1.5)) for _ in range(50)])
    assert 0.1 < model.predict(200) < 0.25


def test_a_slow_single_request_does_not_forbid_the_larger_batch_that_would_teach_better():
    limit = 0.25
    model = learned([(50, 0.16)] * 100)  # all overhead, as it will turn out
    largest = 50
    for _ in range(10):
        largest = max(cost for cost in range(largest, 5000) if model.predict(cost) <= limit)
        model.record(largest, 0.16)
    assert largest > 1000


def test_a_machine_that_became_slower_is_noticed():
    model = learned([(cost, 0.001 * cost) for cost in range(10, 110)] + [(c, 0.01 * c) for c in range(10, 110)])
    assert model.predict(100) == pytest.approx(1.0, rel=0.05)


@given(SAMPLES, st.integers(1, 10**6))
@settings(deadline=None)
def test_predictions_are_never_negative_and_never_fall_with_cost(samples, cost):
    model = learned(samples)
    assert -1e-9 <= model.predict(cost) <= model.predict(cost + 1) * (1 + 1e-9) + 1e-9
