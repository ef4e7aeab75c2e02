"""The arithmetic of Retry-After and of cooldowns; times are made up."""

import pytest

from sie_core.contracts import ModelConfig, ModelLoadError, Profile, ResolvedModel
from sie_core.contracts.errors import PERMANENT_FAILURES
from sie_core.engine.models.load_failure import MOST_ATTEMPTS, FailedLoad, failed_load
from sie_core.engine.models.record import ModelRecord
from sie_core.engine.timeouts import DEFAULT_TIMEOUTS

LONGEST_S = DEFAULT_TIMEOUTS.longest_cooldown_s
MODEL = ResolvedModel("m", ModelConfig("m"), Profile("default"))


def loading(now, load_s=None):
    """Make the record of a model whose load began at 100 s, seen at `now`."""
    return ModelRecord(MODEL, clock=lambda: now, load_started=100.0, load_s=load_s)


def test_the_remaining_time_is_that_of_the_last_load_of_the_model():
    assert loading(110.0, load_s=40.0).remaining_s(estimate=5.0) == 30.0


def test_a_model_that_was_never_loaded_takes_as_long_as_the_others():
    assert loading(102.0).remaining_s(estimate=12.0) == 10.0


def test_nobody_is_sent_away_for_less_than_a_second_and_an_overdue_load_for_longer_and_longer():
    assert loading(101.9, load_s=2.0).remaining_s(estimate=5.0) == 1.0
    assert loading(140.0, load_s=2.0).remaining_s(estimate=5.0) == 10.0


@pytest.mark.parametrize(("failure", "base"), DEFAULT_TIMEOUTS.cooldown_s.items())
def test_cooldowns_double_up_to_half_an_hour_and_the_eighth_failure_is_permanent(failure, base):
    before = None
    for attempt in range(1, MOST_ATTEMPTS + 1):
        before = failed_load("m", ModelLoadError(failure, "why"), before, 1000.0, DEFAULT_TIMEOUTS)
        assert before.attempts == attempt
        assert before.permanent == (attempt == MOST_ATTEMPTS)
        wait = min(base * 2 ** (attempt - 1), LONGEST_S)
        assert before.retry_at == 1000.0 + wait
        assert (before.may_retry(999.0 + wait), before.may_retry(1000.0 + wait)) == (False, True)
        assert f"from {wait:.0f} s on" in before.error(1000.0).message
    assert before.retry_at == 1000.0 + LONGEST_S


@pytest.mark.parametrize("failure", sorted(PERMANENT_FAILURES))
def test_a_permanent_failure_is_tried_again_after_ten_minutes_however_often_it_failed(failure):
    before = None
    for _ in range(MOST_ATTEMPTS + 1):
        before = failed_load("m", ModelLoadError(failure, "why"), before, 1000.0, DEFAULT_TIMEOUTS)
        assert before.permanent
        assert before.retry_at == 1600.0
        assert before.error(1000.0).retry_after_s is None


def test_a_failure_that_never_ends_has_a_cooldown_too():
    before = FailedLoad("m", "NETWORK", "why", attempts=5000, retry_at=0.0)
    failed = failed_load("m", ModelLoadError("NETWORK", "why"), before, 100.0, DEFAULT_TIMEOUTS)
    assert failed.retry_at == 100.0 + LONGEST_S
