"""How long the short requests run that come one after another, beside which others are large."""

from sie_core.batching.sharing.admission import LARGE_TIMES, SHORT_AGAIN_S, QueueAdmission
from sie_core.batching.sharing.demand import Demand
from sie_core.contracts import Batch
from tests.engine.device_time import Model


def ask(admission: QueueAdmission, model: Model, cost: int, now: float) -> None:
    admission.admit(model, [model], Demand((object(), 1.0), object(), None, cost, cost), now, 0.0, 0.0)


def measured(model: Model) -> QueueAdmission:
    """An admission that knows a run of a cost unit to take a millisecond."""
    admission = QueueAdmission(1000)
    for cost in (1, 10) * 20:
        admission.record(model, Batch((), "", cost, cost / 1000), cost / 1000, cost / 1000)
    return admission


def test_the_shortest_of_those_that_come_one_after_another_counts() -> None:
    admission = measured(model := Model())
    ask(admission, model, 10, 1.0)
    ask(admission, model, 2, 1.1)
    ask(admission, model, 10, 1.2)
    longest_s = admission.longest_s(1.2)
    assert longest_s is not None
    assert abs(longest_s - LARGE_TIMES * 0.002) < 1e-4


def test_the_shortest_is_measured_anew_after_a_while_without_one() -> None:
    admission = measured(model := Model())
    ask(admission, model, 2, 1.0)
    later = 1.5 + SHORT_AGAIN_S
    ask(admission, model, 10, later)
    longest_s = admission.longest_s(later)
    assert longest_s is not None
    assert abs(longest_s - LARGE_TIMES * 0.01) < 1e-4


def test_who_came_while_the_last_batch_ran_still_counts_as_coming_when_it_ends() -> None:
    admission = measured(model := Model())
    admission.begun(model, Batch((), "", 500, 5.0), 1.0)
    ask(admission, model, 2, 1.1)
    assert admission.longest_s(6.0) is not None
    admission.begun(model, Batch((), "", 500, 5.0), 6.0)
    assert admission.longest_s(6.0) is None
