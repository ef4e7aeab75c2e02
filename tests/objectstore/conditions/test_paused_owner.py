"""An owner that stands still for longer than its lease: another takes over, and nothing of the first is written."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from sie_core.stores.lease import Lease
from tests.objectstore.conditions.contender import KEY, Contender, contender, open_at
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
        """Read what is guarded, as a third."""
        third = Lease(open_at(self.place), KEY, "third", LASTS_S)
        while not third.acquire():
            pass
        return third.value


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
