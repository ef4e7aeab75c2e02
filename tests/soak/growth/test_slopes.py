"""The judgement of a soak on series that are made up: what grows, what only looks so, what hides."""

from __future__ import annotations

import numpy as np
import pytest

from tests.soak.growth.slopes import LEAST_POINTS, TooFewPointsError, floors, trend, windows

TEN_MINUTES = np.arange(0.0, 400.0, 5.0)
"""The judged part, a point every five seconds."""
ALLOWED = 5.0


def noisy(leak: float = 0.0, deviation: float = 2.0, seed: int = 1) -> np.ndarray:
    """500 MB that grow by `leak` MB a minute, with noise."""
    return 500 + leak * TEN_MINUTES / 60 + np.random.default_rng(seed).normal(0, deviation, len(TEN_MINUTES))


def test_a_straight_line_has_its_own_slope_and_no_noise():
    found = trend(TEN_MINUTES, 500 + 3 * TEN_MINUTES / 60)
    assert found.slope == pytest.approx(3)
    assert (found.low, found.high) == pytest.approx((3, 3))
    assert found.growth == pytest.approx(3 * 395 / 60)
    assert found.verdict(ALLOWED) == "GROWS"


def test_noise_around_a_level_does_not_grow():
    for seed in range(50):
        assert not trend(TEN_MINUTES, noisy(seed=seed)).grows(ALLOWED)
    assert trend(TEN_MINUTES, noisy()).verdict(ALLOWED) == "zero within noise"


def test_a_leak_of_a_megabyte_and_a_half_a_minute_shows_through_the_noise():
    for seed in range(50):
        found = trend(TEN_MINUTES, noisy(leak=1.5, seed=seed))
        assert found.grows(ALLOWED)
        assert found.slope == pytest.approx(1.5, abs=0.5)


def test_the_interval_holds_the_true_slope_as_often_as_it_says():
    held = 0
    for seed in range(400):
        found = trend(TEN_MINUTES[:20], noisy(leak=1.5, seed=seed)[:20])
        held += found.low <= 1.5 <= found.high
    assert 0.92 <= held / 400 <= 0.99


def test_loads_that_come_and_go_neither_hide_a_leak_nor_look_like_one():
    raised = np.where(np.random.default_rng(3).random(len(TEN_MINUTES)) < 0.25, 400.0, 0.0)
    assert not trend(TEN_MINUTES, noisy() + raised).grows(ALLOWED)
    found = trend(TEN_MINUTES, noisy(leak=3) + raised)
    assert found.slope == pytest.approx(3, abs=1)
    assert found.grows(ALLOWED)


def test_what_settles_below_what_is_allowed_is_told_apart_from_zero():
    found = trend(TEN_MINUTES, noisy(leak=0.5, deviation=0.1))
    assert found.verdict(ALLOWED) == "settles, below what is allowed"
    assert trend(TEN_MINUTES, noisy(leak=-0.5, deviation=0.1)).verdict(ALLOWED) == "falls"


def test_a_file_left_open_every_half_minute_shows():
    files = np.full(len(TEN_MINUTES), 15.0)
    assert trend(TEN_MINUTES, files).verdict(2) == "zero within noise"
    assert trend(TEN_MINUTES, files + TEN_MINUTES // 30).grows(2)


def test_too_few_points_are_not_judged():
    points = LEAST_POINTS - 1
    with pytest.raises(TooFewPointsError, match=f"{points} points"):
        trend(TEN_MINUTES[:points], noisy()[:points])


def test_the_least_value_of_each_span_is_kept_with_its_time():
    seconds, values = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [9.0, 3.0, 5.0, 4.0, 8.0, 7.0]
    times, least = floors(seconds, values, [(0.0, 2.0), (2.0, 4.0), (10.0, 12.0)])
    assert (times.tolist(), least.tolist()) == ([1.0, 3.0], [3.0, 4.0])
    assert windows(0.0, 6.0, 3) == [(0.0, 2.0), (2.0, 4.0), (4.0, 6.0)]
