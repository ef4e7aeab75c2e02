"""The arithmetic of Retry-After and of cooldowns; times are made up."""

import pytest

from sie_core.cache.progress import DownloadProgress
from sie_core.contracts import ModelConfig, ModelLoadError, Profile, ResolvedModel
from sie_core.contracts.errors import PERMANENT_FAILURES
from sie_core.engine.models.load_failure import MOST_ATTEMPTS, FailedLoad, failed_load
from sie_core.engine.models.record import ModelRecord, State, Took
from sie_core.engine.timeouts import DEFAULT_TIMEOUTS

LONGEST_S = DEFAULT_TIMEOUTS.longest_cooldown_s
MODEL = ResolvedModel("m", ModelConfig("m"), Profile("default"))


def remaining_s(now, state, took=None, typical=5.0, turn_s=0.0, progress=None):
    """Tell what is left, at `now`, of a load that came to its stage at 100 s."""
    record = ModelRecord(MODEL, clock=lambda: now, state=state, stage_started=100.0, took=took)
    if progress is not None:
        record.download = DownloadProgress(300.0)
        record.download.moved(*progress)
    return record.remaining_s(Took(0.0, typical), turn_s)


def test_a_load_takes_as_long_as_the_last_one_of_the_model_and_the_first_as_long_as_those_of_others():
    assert remaining_s(110.0, State.LOADING, Took(7.0, 40.0)) == 30.0
    assert remaining_s(102.0, State.LOADING, typical=12.0) == 10.0


def test_a_load_that_waits_for_its_turn_takes_the_loads_before_it_and_its_own_time():
    assert remaining_s(110.0, State.QUEUED, Took(7.0, 4.0), turn_s=3.0) == 7.0
    assert remaining_s(110.0, State.AVAILABLE, Took(7.0, 4.0), turn_s=3.0) == 7.0


def test_loads_go_on_while_a_model_is_fetched_whose_time_is_told_by_what_has_come():
    assert remaining_s(101.0, State.FETCHING, Took(3.0, 4.0), turn_s=1.0) == 6.0
    assert remaining_s(101.0, State.FETCHING, Took(3.0, 4.0), turn_s=9.0) == 13.0
    assert remaining_s(110.0, State.FETCHING, Took(3.0, 4.0), progress=(25, 100)) == 34.0


def test_nobody_is_sent_away_for_less_than_a_tenth_of_a_second_and_an_overdue_load_for_longer_and_longer():
    assert remaining_s(101.99, State.LOADING, Took(0.0, 2.0)) == pytest.approx(0.1)
    assert remaining_s(140.0, State.LOADING, Took(0.0, 2.0)) == 10.0


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
