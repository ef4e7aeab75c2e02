"""What fails in a row on a device: a model's requests, and its scheduler."""

import time
from types import SimpleNamespace

from sie_core.engine.device.health import SCHEDULER_FAILURES, DeviceHealth
from sie_core.engine.models.loaded import FAILURES_TOLD, LoadedModel


def loaded() -> SimpleNamespace:
    """Make what health sees of a loaded model."""
    return SimpleNamespace(failures=0)


def fail(seen: DeviceHealth, model: SimpleNamespace, times: int) -> None:
    for _ in range(times):
        seen.model_ran(model, failed=True)


def test_a_model_that_fails_is_told_until_it_answers_and_no_other_model_s_answer_ends_that() -> None:
    seen, bad, good = DeviceHealth(60.0, time.monotonic), loaded(), loaded()
    told = LoadedModel.problem.fget
    fail(seen, bad, FAILURES_TOLD - 1)
    assert told(bad) is None
    fail(seen, bad, 1)
    seen.model_ran(good, failed=False)
    assert told(bad) == f"the last {FAILURES_TOLD} requests to it that ran failed; the server's log says why"
    assert (told(good), seen.problem()) == (None, None)
    seen.model_ran(bad, failed=False)
    assert told(bad) is None


def test_a_scheduler_that_fails_is_told_until_it_works_or_was_not_tried_for_a_while() -> None:
    now = [0.0]
    seen = DeviceHealth(60.0, lambda: now[0])
    for _ in range(SCHEDULER_FAILURES):
        assert seen.scheduler_problem() is None
        seen.scheduler_failed()
    assert "the scheduler failed 3 times" in seen.scheduler_problem()
    now[0] = 61.0
    assert seen.scheduler_problem() is None
    seen.scheduler_failed()
    assert seen.scheduler_problem() is not None
    seen.scheduler_worked()
    assert seen.scheduler_problem() is None
