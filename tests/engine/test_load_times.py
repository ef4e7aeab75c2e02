"""The arithmetic of Retry-After and of cooldowns; times are made up."""

import pytest

from sie_core.contracts import ModelConfig, ModelLoadError, Profile, ResolvedModel
from sie_core.engine.load_failures import COOLDOWN_S, LONGEST_COOLDOWN_S, MOST_ATTEMPTS, failed_load
from sie_core.engine.slots import ModelSlot

MODEL = ResolvedModel("m", ModelConfig("m"), Profile("default"))


def test_the_remaining_time_is_that_of_the_last_load_of_the_model():
    slot = ModelSlot(MODEL, load_started=100.0, load_s=40.0)
    assert slot.remaining_s(110.0, estimate=5.0) == 30.0


def test_a_model_that_was_never_loaded_takes_as_long_as_the_others():
    assert ModelSlot(MODEL, load_started=100.0).remaining_s(102.0, estimate=12.0) == 10.0


def test_nobody_is_sent_away_for_less_than_a_second_and_an_overdue_load_for_longer_and_longer():
    slot = ModelSlot(MODEL, load_started=0.0, load_s=2.0)
    assert slot.remaining_s(1.9, estimate=5.0) == 1.0
    assert slot.remaining_s(40.0, estimate=5.0) == 10.0


@pytest.mark.parametrize(("failure", "base"), COOLDOWN_S.items())
def test_cooldowns_double_up_to_half_an_hour_and_end_after_eight_attempts(failure, base):
    before = None
    for attempt in range(1, MOST_ATTEMPTS + 1):
        before = failed_load("m", ModelLoadError(failure, "why"), before, now=1000.0)
        assert before.attempts == attempt
        if attempt < MOST_ATTEMPTS:
            wait = min(base * 2 ** (attempt - 1), LONGEST_COOLDOWN_S)
            assert before.retry_at == 1000.0 + wait
            assert (before.may_retry(999.0 + wait), before.may_retry(1000.0 + wait)) == (False, True)
    assert before.permanent
    assert not before.may_retry(1e9)
    assert "tried again" not in before.error(0.0).message
