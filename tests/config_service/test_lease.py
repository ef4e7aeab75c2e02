"""A lease: one holder, taken over when it ends, and nothing of a former holder is written. Time is the test's."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from sie_cluster.config_service.history.lease import Lease, LeaseDamaged, LeaseLost

from sie_core.contracts import ObjectStoreError, VersionedObject
from sie_core.folder_store import FolderStore
from tests.cache.conftest import disk

__all__ = ["disk"]

LASTS_S = 10.0


class Flaky(FolderStore):
    """A folder that fails as a store far away does: before or after a write, which the writer cannot tell apart."""

    fails: str | None = None

    def create(self, key: str, data: bytes) -> str:
        return self._or_fail(lambda: super(Flaky, self).create(key, data))

    def replace(self, key: str, data: bytes, version: str) -> str:
        return self._or_fail(lambda: super(Flaky, self).replace(key, data, version))

    def _or_fail(self, write: Callable[[], str]) -> str:
        fails, self.fails = self.fails, None
        if fails == "before":
            raise ObjectStoreError("UNAVAILABLE", "no answer")
        version = write()
        if fails == "after":
            raise ObjectStoreError("UNAVAILABLE", "no answer")
        return version


class World:
    """A store, a clock and the leases of some processes."""

    def __init__(self, folder: Path, processes: int = 2) -> None:
        self.now = 0.0
        self.store = Flaky(folder, durable=False)
        self.leases = [
            Lease(self.store, "lease", f"process {number}", LASTS_S, lambda: self.now) for number in range(processes)
        ]

    def stored(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.store.read("lease"))
        return content


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_one_holds_it_and_the_other_is_told_who(world: World) -> None:
    one, other = world.leases
    assert one.acquire()
    assert one.acquire()
    assert (one.held, one.fence, one.value, one.holder) == (True, 1, "", "process 0")
    assert not other.acquire()
    assert (other.held, other.holder) == (False, "process 0")
    with pytest.raises(LeaseLost, match="not held by process 1: acquire it first"):
        other.write("2")


def test_renewed_in_time_it_never_ends(world: World) -> None:
    one, other = world.leases
    assert one.acquire()
    for _ in range(5):
        assert not other.acquire()
        world.now += LASTS_S - 1
        one.renew()
    one.write("1")
    world.now += LASTS_S - 1
    assert not other.acquire()
    assert one.held


def test_it_is_taken_over_once_it_was_seen_to_stand_for_as_long_as_it_lasts(world: World) -> None:
    one, other = world.leases
    assert one.acquire()
    one.write("1")
    world.now += 10 * LASTS_S
    assert not other.acquire()  # it sees this version for the first time
    world.now += LASTS_S
    assert other.acquire()
    assert (other.fence, other.value) == (2, "1")
    other.write("2")
    for refused in (one.renew, lambda: one.write("3")):
        with pytest.raises(LeaseLost):
            refused()
    assert world.stored()["value"] == "2"


def test_a_write_after_the_next_owner_is_refused_by_the_store_whatever_the_clock_says(world: World) -> None:
    one, other = world.leases
    assert one.acquire()
    assert not other.acquire()
    world.now += LASTS_S
    assert other.acquire()
    world.now = 0.0  # as if `one` had looked at its clock before
    with pytest.raises(LeaseLost, match="no longer held by process 0: process 1 has it"):
        one.write("3")
    assert one.holder == "process 1"
    assert not one.held


def test_past_its_end_nothing_is_written_and_the_own_lease_is_acquired_without_waiting(world: World) -> None:
    one, _ = world.leases
    assert one.acquire()
    world.now += LASTS_S
    assert not one.held
    with pytest.raises(LeaseLost, match="ended before process 0 renewed it"):
        one.write("1")
    assert one.acquire()
    assert one.fence == 2
    one.write("1")


def test_it_is_held_while_it_is_being_renewed_and_written(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = world.leases
    assert one.acquire()
    seen, replace = [], world.store.replace

    def look(key: str, data: bytes, version: str) -> str:
        seen.append(one.held)
        return replace(key, data, version)

    monkeypatch.setattr(world.store, "replace", look)
    one.renew()
    one.write("1")
    assert seen == [True, True]


def test_released_it_is_taken_at_once(world: World) -> None:
    one, other = world.leases
    assert one.acquire()
    one.write("1")
    one.release()
    one.release()
    assert not one.held
    assert other.acquire()
    assert other.value == "1"


@pytest.mark.parametrize(("fails", "value"), [("before", "1"), ("after", "2")])
def test_a_write_without_an_answer_is_read_again_before_the_next(world: World, fails: str, value: str) -> None:
    one, _ = world.leases
    assert one.acquire()
    one.write("1")
    world.store.fails = fails
    with pytest.raises(ObjectStoreError, match="no answer"):
        one.write("2")
    with pytest.raises(LeaseLost, match="acquire it first"):
        one.write("3")
    assert one.acquire()
    assert one.value == value


def test_on_a_full_disk_the_old_value_stays_and_writes_go_on_once_there_is_room(disk: Callable[..., Path]) -> None:
    folder = disk("256k")
    lease = Lease(FolderStore(folder / "store"), "lease", "process", LASTS_S)
    assert lease.acquire()
    lease.write("1")
    filler = folder / "filler"
    with contextlib.suppress(OSError):
        filler.write_bytes(bytes(2**20))
    with pytest.raises(ObjectStoreError, match="No space left on device") as raised:
        lease.write("2")
    assert raised.value.failure == "UNAVAILABLE"
    filler.unlink()
    assert lease.acquire()
    assert lease.value == "1"
    lease.write("2")


def test_each_write_is_new_content_even_of_an_equal_value(world: World) -> None:
    one, other = world.leases
    seen = []
    for each in (one.acquire, one.renew, lambda: one.write(""), one.renew, one.release, other.acquire, other.release):
        each()
        seen.append(world.store.read("lease"))
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"{}", b"[" * 100_000, b"\xff"]
    + [
        json.dumps({"owner": "o", "token": "t", "fence": 1, "writes": 0, "lasts_s": 1, "value": "", **wrong}).encode()
        for wrong in (
            {"fence": 0}, {"fence": "1"}, {"writes": -1}, {"lasts_s": -1}, {"lasts_s": 1e9}, {"lasts_s": float("nan")},
            {"lasts_s": "1"}, {"owner": 7}, {"value": None}, {"more": 1},
        )
    ],
)  # fmt: skip
def test_what_is_no_lease_is_refused_and_left_as_it_is(world: World, content: bytes) -> None:
    world.store.write("lease", content)
    with pytest.raises(LeaseDamaged, match="restore it from a backup"):
        world.leases[0].acquire()
    assert world.store.read("lease") == content
    assert not world.leases[0].held


@pytest.mark.parametrize("ignored", ["create", "replace"])
def test_a_store_that_ignores_conditions_is_refused(world: World, ignored: str) -> None:
    class Ignores(FolderStore):
        def create(self, key: str, data: bytes) -> str:
            if ignored == "create":
                self.write(key, data)
                return self.read_version(key).version
            return super().create(key, data)

        def replace(self, key: str, data: bytes, version: str) -> str:
            return super().replace(key, data, self.read_version(key).version if ignored == "replace" else version)

    assert world.leases[0].acquire()
    world.leases[0].release()
    lease = Lease(Ignores(Path(world.store.url)), "lease", "process", LASTS_S)
    with pytest.raises(ObjectStoreError, match="ignores the conditions of writes"):
        lease.acquire()
    assert not lease.held


@pytest.mark.parametrize("lasts_s", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_how_long_it_lasts_is_bounded(world: World, lasts_s: float) -> None:
    with pytest.raises(ValueError, match="at most 3600"):
        Lease(world.store, "lease", "process", lasts_s)


class Processes(RuleBasedStateMachine):
    """Three processes count in what a lease guards, while time passes and the store fails."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.world = World(Path(self.folder.name), 3)
        self.acknowledged = 0
        """The highest number that a write was answered for."""
        self.open = 0
        """Writes without an answer since then."""
        self.fence = 0

    def teardown(self) -> None:
        self.folder.cleanup()

    number = st.integers(0, 2)

    @rule(number=number)
    def acquire(self, number: int) -> None:
        lease = self.world.leases[number]
        before = lease.held
        try:
            if not lease.acquire() or before:
                return
        except ObjectStoreError:
            return
        assert lease.fence > self.fence
        self.fence = lease.fence
        assert self.acknowledged <= int(lease.value or 0) <= self.acknowledged + self.open
        self.acknowledged, self.open = int(lease.value or 0), 0

    @rule(number=number)
    def write(self, number: int) -> None:
        lease = self.world.leases[number]
        following = int(lease.value or 0) + 1
        try:
            lease.write(str(following))
        except LeaseLost:
            return
        except ObjectStoreError:
            self.open += 1
            return
        assert lease.fence == self.fence
        assert following == self.acknowledged + 1
        self.acknowledged = following

    @rule(number=number, release=st.booleans())
    def keep(self, number: int, release: bool) -> None:
        lease = self.world.leases[number]
        with contextlib.suppress(LeaseLost, ObjectStoreError):
            lease.release() if release else lease.renew()

    @rule(seconds=st.sampled_from([1.0, LASTS_S - 1, LASTS_S]))
    def pass_time(self, seconds: float) -> None:
        self.world.now += seconds

    @precondition(lambda self: self.world.store.fails is None)
    @rule(when=st.sampled_from(["before", "after"]))
    def fail_next(self, when: str) -> None:
        self.world.store.fails = when

    @invariant()
    def at_most_one_holds_it(self) -> None:
        assert sum(lease.held for lease in self.world.leases) <= 1


def test_no_count_is_lost_or_repeated_whatever_happens() -> None:
    run_state_machine_as_test(Processes, settings=settings(max_examples=60, stateful_step_count=30, deadline=None))


def test_what_is_read_names_its_version(world: World) -> None:
    assert world.leases[0].acquire()
    found = world.store.read_version("lease")
    assert isinstance(found, VersionedObject)
    assert world.store.replace("lease", found.data, found.version) == found.version
