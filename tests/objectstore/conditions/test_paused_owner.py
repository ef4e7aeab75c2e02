"""An owner that stands still for longer than its lease: another takes over, and nothing of the first is written."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.objectstore.conditions.contender import KEY, WAIT_S, Contender, contender, open_at
from tests.objectstore.conftest import variables

LASTS_S = 0.5
STEPS = ("hardlink_to", "read_bytes", "replace")
"""Calls of a folder's `replace`: it announces itself, looks at the version, and writes."""


@dataclass
class Two:
    """Two processes on one store."""

    first: Contender
    second: Contender
    place: str

    def value(self) -> str:
        """Read what is guarded."""
        return str(json.loads(open_at(self.place).read(KEY))["value"])

    def until_owned_by(self, *names: str) -> str:
        """Wait until one of them has written, and return which."""
        store, end = open_at(self.place), time.monotonic() + WAIT_S
        while time.monotonic() < end:
            if store.size(KEY) is not None and (owner := json.loads(store.read(KEY))["owner"]) in names:
                return str(owner)
            time.sleep(0.01)
        raise AssertionError(f"none of {names} took the lease")


@pytest.fixture(params=["folder", "s3"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Mapping[str, str]]:
    """A store, and the variables that lead there."""
    if request.param == "folder":
        return str(tmp_path / "store"), {}
    where = variables(request.getfixturevalue("s3"))
    for name, value in where.items():
        monkeypatch.setenv(name, value)
    return request.getfixturevalue("bucket"), where


@pytest.fixture
def two(place: tuple[str, Mapping[str, str]]) -> Iterator[Two]:
    where, environment = place
    with ExitStack() as running:
        first, second = (
            running.enter_context(contender(where, name, LASTS_S, environment)) for name in ("first", "second")
        )
        yield Two(first, second, where)


def test_a_stopped_owner_is_refused_when_it_goes_on(two: Two) -> None:
    two.first.acquire()
    assert two.first.call("write", "1") == "1"
    two.first.signal(signal.SIGSTOP)
    two.first.until_stopped()
    two.second.acquire()
    assert two.second.call("write", "2") == "2"
    two.first.ask("write", "first's")
    two.first.signal(signal.SIGCONT)
    assert str(two.first.answer()).startswith("LOST")
    assert two.value() == "2"


def test_an_owner_stopped_between_its_check_and_its_request_is_refused(two: Two) -> None:
    two.first.acquire()
    two.first.call("stop before", "the request")
    refused_when_it_goes_on(two)


@pytest.mark.parametrize("place", ["folder"], indirect=True)
@pytest.mark.parametrize("step", STEPS)
def test_an_owner_stopped_at_any_step_of_a_write_hinders_nobody_and_is_refused(two: Two, step: str) -> None:
    two.first.acquire()
    two.first.call("stop before", step)
    refused_when_it_goes_on(two)


@pytest.mark.parametrize("place", ["folder"], indirect=True)
def test_an_owner_killed_in_the_middle_of_a_write_leaves_the_old_value_and_hinders_nobody(two: Two) -> None:
    two.first.acquire()
    assert two.first.call("write", "1") == "1"
    two.first.call("stop before", "replace")
    two.first.ask("write", "first's")
    two.first.until_stopped()
    two.first.signal(signal.SIGKILL)
    two.second.acquire()
    assert two.value() == "1"


def test_owners_stopped_in_turns_leave_no_gap_and_no_repeat_in_what_they_count(two: Two) -> None:
    store = open_at(two.place)
    both = {"first": two.first, "second": two.second}
    for each in both.values():
        each.ask("count in the lease", "end")
    for _ in range(4):
        owner = two.until_owned_by(*both)
        both[owner].signal(signal.SIGSTOP)
        (other,) = both.keys() - {owner}
        two.until_owned_by(other)
        both[owner].signal(signal.SIGCONT)
    store.write("end", b"")
    numbers = sorted(number for each in both.values() for number in each.answer())
    assert numbers == list(range(1, len(numbers) + 1))
    assert two.value() == str(len(numbers))


def refused_when_it_goes_on(two: Two) -> None:
    two.first.ask("write", "first's")
    two.first.until_stopped()
    two.second.acquire()
    assert two.second.call("write", "2") == "2"
    two.first.signal(signal.SIGCONT)
    answer = str(two.first.answer())
    assert answer.startswith("LOST")
    assert "second" in answer
    assert two.second.call("write", "3") == "3"
    assert two.value() == "3"
