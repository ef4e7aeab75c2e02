"""What is allowed for a request's batch, after so many were late."""

import pytest

from sie_core.batching.sharing.lateness import Lateness


def after(late, in_time=0, batch_s=0.2):
    lateness = Lateness()
    for _ in range(20):
        lateness.record(batch_s)
    lateness.ended(late, in_time)
    return lateness


def test_nothing_is_allowed_for_while_all_are_in_time():
    assert after(0, 1000).allowance_s(1.0) == 0.0


def test_late_ones_have_up_to_a_batch_and_a_half_allowed_for():
    allowed = [after(late).allowance_s(1.0) for late in (1, 4, 8, 12, 100)]
    assert allowed == pytest.approx([0.025, 0.1, 0.2, 0.3, 0.3])


def test_one_late_one_of_two_hundred_leaves_it_as_it_is_and_fewer_take_it_back():
    lateness = after(8)
    lateness.ended(1, 200)
    assert lateness.allowance_s(1.0) == pytest.approx(0.2)
    lateness.ended(0, 800)
    assert lateness.allowance_s(1.0) == pytest.approx(0.1)
    lateness.ended(0, 10_000)
    assert lateness.allowance_s(1.0) == 0.0


def test_no_more_is_allowed_for_than_waits():
    assert after(8).allowance_s(0.03) == pytest.approx(0.03)


def test_batches_of_now_count_most():
    lateness = after(8, batch_s=0.2)
    for _ in range(50):
        lateness.record(0.01)
    assert lateness.allowance_s(1.0) == pytest.approx(0.01, rel=0.2)


def test_before_the_first_batch_nothing_is_known():
    lateness = Lateness()
    lateness.ended(100, 0)
    assert lateness.allowance_s(1.0) == 0.0
