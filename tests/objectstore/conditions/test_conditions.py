"""Conditional writes of every store: one of several wins, the others are refused, and a lost answer fools nobody."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from sie_objectstore.store import BucketStore

from sie_core.contracts import ObjectStore, ObjectStoreError
from sie_core.folder_store import FolderStore
from tests.objectstore.conditions.contender import contender
from tests.objectstore.conftest import Impatient, variables
from tests.objectstore.proxy import Faults

STORES = ("folder", "s3", "az")
"""What stands for Google's store here knows none of its conditions."""
BUCKETS = ("s3", "az")


@pytest.fixture(params=STORES)
def scheme(request: pytest.FixtureRequest) -> str:
    """Every kind of store there is."""
    return str(request.param)


@pytest.fixture
def any_store(scheme: str, tmp_path: Path, request: pytest.FixtureRequest) -> ObjectStore:
    """A store of each kind."""
    if scheme == "folder":
        return FolderStore(tmp_path / "store")
    store: BucketStore = request.getfixturevalue("store")
    return store


def conflict(call: object) -> None:
    with pytest.raises(ObjectStoreError, match="read it again") as raised:
        call()  # type: ignore[operator]
    assert raised.value.failure == "CONFLICT"


def test_an_object_is_created_once_and_replaced_by_its_version(any_store: ObjectStore) -> None:
    first = any_store.create("a/one", b"1")
    conflict(lambda: any_store.create("a/one", b"1"))
    assert (found := any_store.read_version("a/one")).data == b"1"
    assert found.version == first
    second = any_store.replace("a/one", b"2", first)
    assert second != first
    conflict(lambda: any_store.replace("a/one", b"3", first))
    conflict(lambda: any_store.create("a/one", b"3"))
    assert any_store.read("a/one") == b"2"
    assert any_store.replace("a/one", b"3", second) == any_store.read_version("a/one").version
    any_store.delete("a/one")
    conflict(lambda: any_store.replace("a/one", b"4", second))
    conflict(lambda: any_store.replace("none", b"4", second))
    assert any_store.size("a/one") is any_store.size("none") is None
    with pytest.raises(ObjectStoreError) as missing:
        any_store.read_version("none")
    assert missing.value.failure == "NOT_FOUND"


def test_of_many_at_once_one_wins_each_version(any_store: ObjectStore) -> None:
    def attempt(number: int, version: str | None) -> str | ObjectStoreError:
        try:
            content = str(number).encode()
            return any_store.create("one", content) if version is None else any_store.replace("one", content, version)
        except ObjectStoreError as error:
            return error

    version: str | None = None
    with ThreadPoolExecutor(4) as threads:
        for turn in range(2):
            answers = list(threads.map(attempt, range(4 * turn, 4 * turn + 4), itertools.repeat(version)))
            (version,) = (answer for answer in answers if isinstance(answer, str))
            assert [each.failure for each in answers if isinstance(each, ObjectStoreError)] == 3 * ["CONFLICT"]
            assert any_store.read_version("one").version == version


@pytest.mark.parametrize("scheme", BUCKETS)
def test_an_answer_that_was_lost_is_no_conflict(store: BucketStore, proxy: Faults) -> None:
    proxy.lost_answers = 1
    version = store.create("one", b"1")
    proxy.lost_answers = 2
    assert store.replace("one", b"2", version) == store.read_version("one").version
    assert store.read("one") == b"2"
    assert proxy.lost_answers == 0
    conflict(lambda: store.create("one", b"2"))


@pytest.mark.parametrize("scheme", BUCKETS)
def test_while_no_answer_comes_it_is_left_open_whether_the_object_was_written(
    bucket: str, proxy: Faults, impatient: Impatient
) -> None:
    store = impatient(bucket)
    proxy.lost_answers = 2
    with pytest.raises(ObjectStoreError) as raised:
        store.create("one", b"1")
    assert raised.value.failure == "UNAVAILABLE"
    assert store.read("one") == b"1"


@pytest.mark.parametrize("scheme", ["folder", "s3"])
def test_of_two_processes_one_creates_and_no_count_of_theirs_is_lost(
    any_store: ObjectStore, scheme: str, request: pytest.FixtureRequest
) -> None:
    where = {} if scheme == "folder" else variables(request.getfixturevalue("s3"))
    with ExitStack() as running:
        both = [running.enter_context(contender(any_store.url, where)) for _ in range(2)]
        for key in map(str, range(20)):
            for each, name in zip(both, ("one", "two"), strict=True):
                each.ask("create", key, name)
            answers = [each.answer() for each in both]
            assert sorted(answer == "CONFLICT" for answer in answers) == [False, True]
            assert any_store.read(key) == (b"two" if answers[0] == "CONFLICT" else b"one")
        any_store.create("count", b"0")
        for each in both:
            each.ask("count", "count", 50)
        assert [each.answer() for each in both] == [50, 50]
        assert any_store.read("count") == b"100"
