"""How long requests take is told by measured ones of about their size, and by no shorter ones."""

from __future__ import annotations

import pytest

from sie_core.batching.request_sizes import ALIKE, RequestTimes, request_s


@pytest.mark.parametrize(
    ("size", "seconds"),
    [(5, 0.5), (10, 1.0), (55, 1.5), (100, 2.0), (200, 4.0), (100 * ALIKE, 2.0 * ALIKE), (1e6, 2.0 * ALIKE)],
)
def test_seconds_grow_evenly_between_sizes_and_beyond_them_only_as_far_as_requests_are_alike(
    size: float, seconds: float
) -> None:
    assert request_s([(10, 1.0), (100, 2.0)], size) == pytest.approx(seconds)


def test_where_nothing_was_measured_nothing_takes_time() -> None:
    assert request_s([], 10) == RequestTimes().seconds(100, 3) == 0


def test_several_requests_take_what_each_of_their_mean_size_does() -> None:
    times = RequestTimes()
    times.record(640, 0.064, requests=64, left=0, loaded=True)
    assert times.seconds(100, 10) == pytest.approx(0.01)
    assert times.seconds(100_000) == pytest.approx(ALIKE * 0.001)


def test_the_first_parts_of_a_long_request_tell_nothing_and_the_next_also_of_longer_ones() -> None:
    times = RequestTimes()
    for cost, seconds in ((100, 9.0), (1000, 0.1)):
        times.record(cost, seconds, requests=1, left=40_000, loaded=True)
        assert times.seconds(40_000) == 0
    for _ in range(30):
        times.record(8000, 0.8, requests=1, left=33_000, loaded=True)
    assert times.seconds(41_000) == pytest.approx(4.1, rel=0.05)
    assert times.seconds(4_100_000) == pytest.approx(410, rel=0.05)


def test_what_ran_alone_counts_until_a_size_was_measured_under_load() -> None:
    times = RequestTimes()
    times.record(10, 0.005, requests=1, left=0, loaded=False)
    assert times.seconds(10) == pytest.approx(0.005)
    times.record(640, 0.064, requests=64, left=0, loaded=True)
    times.record(10, 0.005, requests=1, left=0, loaded=False)
    assert times.seconds(10) == pytest.approx(0.001)


def test_a_size_that_did_not_run_for_long_is_as_one_that_never_did() -> None:
    times = RequestTimes()
    times.record(5000, 5.0, requests=1, left=0, loaded=True)
    for _ in range(200):
        times.record(10, 0.001, requests=1, left=0, loaded=True)
    assert times.seconds(5000) == pytest.approx(ALIKE * 0.001)
