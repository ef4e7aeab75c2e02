"""What becomes of a batch that failed, by what it raised and what is left in it."""

from dataclasses import dataclass

import pytest

from sie_core.contracts import Batch, OutOfDeviceMemory, Unit
from sie_core.engine.device.batch_run import Run, after_failure, after_freeing
from sie_core.engine.requests.inflight import FlightUnit

OOM = pytest.mark.parametrize("error", [OutOfDeviceMemory("full"), MemoryError()])


@dataclass(eq=False)
class Asked:
    """What a retry sees of a request."""

    name: str


def run_of(requests: str, *, after: bool = False) -> Run:
    """Make a run with one unit a letter, which names its request; unit n costs n + 1."""
    flights = {name: Asked(name) for name in requests}
    units = []
    for number, name in enumerate(requests):
        made = Unit(number, number + 1, "key", payload=None)
        units.append(FlightUnit(made, flights[name], index=number, made=made))
    cost = sum(unit.unit.cost for unit in units)
    return Run(None, Batch(None, tuple(units), cost, predicted_s=1.0), after_freeing=after)


def names(runs) -> list[str]:
    return ["".join(unit.request.name for unit in run.units) for run in runs]


def test_a_batch_that_raised_is_split_by_request_and_its_order_and_costs_are_kept() -> None:
    parts = after_failure(run_of("abcab"), ValueError(), 5)
    assert names(parts) == ["aa", "bcb"]
    assert [part.batch.cost for part in parts] == [5, 10]
    assert [part.batch.predicted_s for part in parts] == pytest.approx([1 / 3, 2 / 3])
    assert not any(part.after_freeing for part in parts)


@pytest.mark.parametrize("after", [False, True])
def test_one_request_that_raised_fails_however_many_units_it_has(after: bool) -> None:
    assert after_failure(run_of("aaaa", after=after), ValueError(), 4) == []


@OOM
def test_a_batch_that_lacks_memory_is_set_aside_first_then_halved_and_a_single_unit_fails(error) -> None:
    assert after_failure(run_of("aab"), error, 3) is None
    parts = after_failure(run_of("aab", after=True), error, 3)
    assert names(parts) == ["a", "ab"]
    assert all(part.after_freeing for part in parts)
    assert after_failure(run_of("a", after=True), error, 1) == []


@pytest.mark.parametrize(("freed", "tried"), [(True, ["aab"]), (False, ["a", "ab"])])
def test_a_batch_set_aside_runs_whole_where_memory_was_freed_and_in_halves_where_not(freed, tried) -> None:
    parts = after_freeing(run_of("aab"), freed=freed)
    assert names(parts) == tried
    assert all(part.after_freeing for part in parts)


def test_a_single_unit_set_aside_is_tried_once_more_though_nothing_was_freed() -> None:
    assert names(after_freeing(run_of("a"), freed=False)) == ["a"]
