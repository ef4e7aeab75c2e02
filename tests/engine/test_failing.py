"""What fails in a row: a model, or the device under all of them."""

import gc
import weakref

import pytest

from sie_core.engine.device.health import ENOUGH, Failing

SPAN_S = 60.0


def failing(*models: str, worked: tuple[str, ...]) -> Failing:
    made = Failing(SPAN_S)
    for model in models:
        made.add(model)
    for model in worked:
        made.succeeded(model)
    return made


def fail(seen: Failing, models: str, times: int = ENOUGH, over_s: float = SPAN_S) -> None:
    for number in range(times):
        seen.failed(models[number % len(models)], over_s * number / (times - 1))


def test_the_only_model_that_answered_and_then_fails_for_long_makes_the_device_broken() -> None:
    seen = failing("a", worked=("a",))
    fail(seen, "a")
    assert seen.device_problem() == f"{ENOUGH} requests failed in a row within 60 s, of models that had answered before"
    seen.succeeded("a")
    assert seen.device_problem() is None


def test_several_models_that_answered_and_fail_together_make_the_device_broken() -> None:
    seen = failing("a", "b", "c", worked=("a", "b", "c"))
    fail(seen, "ab")
    assert seen.device_problem() is not None


@pytest.mark.parametrize(
    ("models", "worked", "failed", "times", "over_s"),
    [
        ("a", "", "a", ENOUGH, SPAN_S),  # it never answered: a restart would bring the same
        ("ab", "ab", "a", ENOUGH, SPAN_S),  # nobody knows of the other
        ("ab", "b", "ab", ENOUGH, SPAN_S),  # of two that fail one was broken all along
        ("a", "a", "a", ENOUGH - 1, SPAN_S),
        ("a", "a", "a", 1000, SPAN_S - 1),  # a burst of bad requests
    ],
)
def test_what_may_be_a_model_or_its_requests_leaves_the_device_alone(
    models: str, worked: str, failed: str, times: int, over_s: float
) -> None:
    seen = failing(*models, worked=tuple(worked))
    fail(seen, failed, times, over_s)
    assert seen.device_problem() is None


def test_one_success_in_between_on_any_model_clears_the_device_and_not_the_other_model() -> None:
    seen = failing("a", "b", worked=("a", "b"))
    fail(seen, "a")
    seen.succeeded("b")
    fail(seen, "b", times=2)
    assert seen.device_problem() is None
    assert seen.problem("a") == f"the last {ENOUGH} requests to it that ran failed; the server's log says why"
    assert seen.problem("b") is None


def test_an_unloaded_model_is_forgotten_and_its_last_batches_are_ignored() -> None:
    seen = failing("a", worked=("a",))
    fail(seen, "a")
    seen.remove("a")
    fail(seen, "a")
    assert seen.problem("a") is None
    seen.add("a")
    assert seen.problem("a") is None


def test_a_model_that_fails_beside_others_is_not_believed_because_they_are_unloaded() -> None:
    seen = failing("a", "b", worked=("a", "b"))
    fail(seen, "a")
    seen.remove("b")
    assert seen.device_problem() is None
    for number in range(ENOUGH):
        assert seen.device_problem() is None
        seen.failed("a", SPAN_S + 1 + SPAN_S * number / (ENOUGH - 1))
    assert seen.device_problem() is not None  # for long enough since it is the only one


def test_a_device_that_two_models_found_broken_stays_so_when_one_of_them_is_unloaded() -> None:
    seen = failing("a", "b", worked=("a", "b"))
    fail(seen, "ab")
    seen.remove("b")
    assert seen.device_problem() is not None
    seen.failed("a", SPAN_S + 1)
    assert seen.device_problem() is not None


def test_rare_requests_that_fail_make_no_row_on_the_device_and_one_of_their_model() -> None:
    seen = failing("a", worked=("a",))
    for number in range(ENOUGH):
        seen.failed("a", (SPAN_S + 1) * number)
    assert seen.device_problem() is None
    assert seen.problem("a") is not None


def test_an_unloaded_model_that_failed_is_kept_by_nobody() -> None:
    class Model:
        """What holds an adapter and its weights."""

    model = Model()
    seen = Failing(SPAN_S)
    seen.add(model)
    seen.succeeded(model)
    seen.failed(model, 0.0)
    seen.remove(model)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
