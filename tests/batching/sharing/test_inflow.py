"""What smaller requests leave of the device to a larger one."""

import pytest

from sie_core.batching.sharing.inflow import LEAST_SHARE, MEMORY_S, Inflow


def steady(inflow, seconds, share):
    """Have requests of `seconds` take a share of the device for long enough; return the time at the end."""
    now = 0.0
    while now < 5 * MEMORY_S:
        inflow.record(seconds, 1.0, now)
        now += seconds / share
    return now


def test_a_large_request_has_what_smaller_ones_leave_and_a_small_one_everything():
    inflow = Inflow()
    now = steady(inflow, 0.01, 0.4)
    assert inflow.left(1.0, 1.0, now) == pytest.approx(0.6, abs=0.02)
    assert inflow.left(0.01, 1.0, now) == inflow.left(0.001, 1.0, now) == 1.0


def test_requests_of_one_size_are_not_smaller_where_the_device_becomes_slower():
    inflow = Inflow()
    now = steady(inflow, 0.24, 0.9)
    assert inflow.left(0.26, 1.0, now) == inflow.left(0.4, 1.0, now) == 1.0
    assert inflow.left(1.1, 1.0, now) < 0.3


def test_what_came_long_ago_is_forgotten():
    inflow = Inflow()
    now = steady(inflow, 0.01, 0.4)
    assert inflow.left(1.0, 1.0, now + 10 * MEMORY_S) == pytest.approx(1.0, abs=0.01)


def test_a_large_request_always_has_a_share():
    inflow = Inflow()
    now = steady(inflow, 0.01, 5.0)
    assert inflow.left(1.0, 1.0, now) == LEAST_SHARE


def test_a_request_of_large_weight_is_as_one_that_is_so_much_smaller():
    inflow = Inflow()
    now = steady(inflow, 0.1, 0.4)
    assert inflow.left(0.1, 0.25, now) == pytest.approx(0.6, abs=0.02)
    assert inflow.left(0.4, 4.0, now) == 1.0
