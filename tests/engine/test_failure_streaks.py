"""What fails in a row on a device: a model's requests, and batch policies."""

import gc
import time
import weakref

from sie_core.engine.device.health import FAILURES_TOLD, POLICY_FAILURES, DeviceHealth


def health(*models: object, clock=time.monotonic) -> DeviceHealth:
    made = DeviceHealth(60.0, clock)
    for model in models:
        made.add(model)
    return made


def fail(seen: DeviceHealth, model: object, times: int = FAILURES_TOLD) -> None:
    for _ in range(times):
        seen.model_failed(model)


def test_a_model_that_fails_is_told_until_it_answers_and_no_other_model_s_answer_ends_that() -> None:
    seen = health("a", "b")
    fail(seen, "a", FAILURES_TOLD - 1)
    assert seen.model_problem("a") is None
    fail(seen, "a", 1)
    seen.model_answered("b")
    assert (
        seen.model_problem("a") == f"the last {FAILURES_TOLD} requests to it that ran failed; the server's log says why"
    )
    assert (seen.model_problem("b"), seen.problem()) == (None, None)
    seen.model_answered("a")
    assert seen.model_problem("a") is None


def test_an_unloaded_model_is_forgotten_and_its_last_batches_are_not_counted() -> None:
    seen = health("a")
    fail(seen, "a")
    seen.remove("a")
    fail(seen, "a")
    assert seen.model_problem("a") is None
    seen.add("a")
    assert seen.model_problem("a") is None


def test_an_unloaded_model_that_failed_is_kept_by_nobody() -> None:
    class Model:
        """What holds an adapter and its weights."""

    model = Model()
    seen = health(model)
    fail(seen, model)
    seen.remove(model)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_policies_that_fail_are_told_until_one_works_or_none_was_tried_for_a_while() -> None:
    now = [0.0]
    seen = health(clock=lambda: now[0])
    for _ in range(POLICY_FAILURES):
        assert seen.policy_problem() is None
        seen.policy_failed()
    assert "batch policies failed 3 times" in seen.policy_problem()
    now[0] = 61.0
    assert seen.policy_problem() is None
    seen.policy_failed()
    assert seen.policy_problem() is not None
    seen.policy_worked()
    assert seen.policy_problem() is None
