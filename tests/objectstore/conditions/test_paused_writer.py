"""A writer that stands still in the middle of a write: others go on, and what it writes afterwards is refused."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.objectstore.conditions.contender import KEY, WAIT_S, Contender, contender, open_at
from tests.objectstore.conftest import variables

STEPS = ("hardlink_to", "read_bytes", "replace")
"""Calls of a folder's `replace`: it announces itself, looks at the version, and writes."""
TIMES = 60


@dataclass
class Two:
    """Two processes on one store."""

    first: Contender
    second: Contender
    place: str

    def value(self) -> str:
        """Read what they write."""
        return open_at(self.place).read(KEY).decode()

    def until_beyond(self, count: int) -> int:
        """Wait until they have counted further or are done, and return how far."""
        end = time.monotonic() + WAIT_S
        while (reached := int(self.value())) <= count < 2 * TIMES:
            assert time.monotonic() < end, "nobody counts"
            time.sleep(0.002)
        return reached


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
        first, second = (running.enter_context(contender(where, environment)) for _ in range(2))
        open_at(where).create(KEY, b"0")
        yield Two(first, second, where)


def test_a_writer_stopped_before_its_request_is_refused(two: Two) -> None:
    refused_when_it_goes_on(two, "the request")


@pytest.mark.parametrize("place", ["folder"], indirect=True)
@pytest.mark.parametrize("step", STEPS)
def test_a_writer_stopped_at_any_step_of_a_write_hinders_nobody_and_is_refused(two: Two, step: str) -> None:
    refused_when_it_goes_on(two, step)


@pytest.mark.parametrize("place", ["folder"], indirect=True)
def test_a_writer_killed_in_the_middle_of_a_write_leaves_the_old_value_and_hinders_nobody(two: Two) -> None:
    two.first.call("see")
    two.first.call("stop before", "replace")
    two.first.ask("write", "first's")
    two.first.until_stopped()
    two.first.signal(signal.SIGKILL)
    two.second.call("see")
    assert two.value() == "0"
    assert two.second.call("write", "2") == "2"


def test_writers_stopped_in_turns_lose_nothing_of_what_they_count(two: Two) -> None:
    for each in (two.first, two.second):
        each.ask("count", KEY, TIMES)
    reached = 0
    for stopped in (two.first, two.second) * 2:
        stopped.signal(signal.SIGSTOP)
        reached = two.until_beyond(reached)
        stopped.signal(signal.SIGCONT)
    assert two.first.answer() == two.second.answer() == TIMES
    assert two.value() == str(2 * TIMES)


def refused_when_it_goes_on(two: Two, step: str) -> None:
    two.first.call("see")
    two.first.call("stop before", step)
    two.first.ask("write", "first's")
    two.first.until_stopped()
    two.second.call("see")
    assert two.second.call("write", "2") == "2"
    two.first.signal(signal.SIGCONT)
    assert two.first.answer() == "CONFLICT"
    assert two.second.call("write", "3") == "3"
    assert two.value() == "3"
