"""The learned cost model against costs whose law is known."""

import pytest
from hypothesis import given
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


def test_one_measurement_predicts_in_proportion():
    assert learned([(10, 0.02)]).predict(50) == pytest.approx(0.1)


def test_overhead_and_cost_per_unit_are_told_apart():
    model = learned([(cost, 0.005 + 0.001 * cost) for cost in (1, 50, 10, 200, 5)])
    assert model.predict(1000) == pytest.approx(1.005)
    assert model.predict(1) == pytest.approx(0.006)


def test_equal_costs_predict_in_proportion_rather_than_by_a_slope_of_noise():
    model = learned([(100, 0.1), (100, 0.11), (101, 0.09)])
    assert model.predict(200) == pytest.approx(0.2, rel=0.01)


def test_a_machine_that_became_slower_is_noticed():
    model = learned([(cost, 0.001 * cost) for cost in range(10, 110)] + [(c, 0.01 * c) for c in range(10, 110)])
    assert model.predict(100) == pytest.approx(1.0, rel=0.05)


@given(SAMPLES, st.integers(1, 10**6))
def test_predictions_are_never_negative_and_never_fall_with_cost(samples, cost):
    model = learned(samples)
    assert 0 <= model.predict(cost) <= model.predict(cost + 1) * (1 + 1e-9)
