"""A folder as an object store: whole files, typed failures, no way out, and replaced by one of many at a time."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sie_core.contracts import ObjectStoreError, PluginError
from sie_core.folder_store import LEFT_S, STAGED, FolderStore
from sie_core.plugins.object_stores import open_store_or_folder


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "new" / "store")


def failure(call: Callable[[], Any]) -> str:
    with pytest.raises(ObjectStoreError) as raised:
        call()
    return raised.value.failure


def staged(store: FolderStore) -> list[Path]:
    return list(Path(store.url, STAGED).iterdir())


def test_objects_are_written_read_listed_and_removed(store: FolderStore) -> None:
    assert list(store.list("")) == list(store.list("a")) == []
    store.write("a/one", b"1")
    store.write("a/one", b"12")
    store.write("a/b/two", b"2")
    store.write("ab", b"3")
    assert store.read("a/one") == b"12"
    assert {each.key: each.size for each in store.list("a")} == {"a/one": 2, "a/b/two": 1}
    assert {each.key for each in store.list("")} == {"a/one", "a/b/two", "ab"}
    assert {each.key for each in store.list("", below=False)} == {"ab"}
    assert {each.key for each in store.list("a", below=False)} == {"a/one"}
    (before,) = (each.version for each in store.list("a/b"))
    store.write("a/b/two", b"new")
    assert [each.version for each in store.list("a/b")] != [before]
    store.delete("a/one")
    store.delete("a/one")
    assert (store.size("a/one"), store.size("a"), store.size("ab")) == (None, None, 1)
    assert failure(lambda: store.read("a/one")) == failure(lambda: store.read("a")) == "NOT_FOUND"
    assert staged(store) == []


def test_files_go_there_and_come_back(store: FolderStore, tmp_path: Path) -> None:
    content = os.urandom(2**20)
    (tmp_path / "given").write_bytes(content)
    store.upload("file", tmp_path / "given")
    seen: list[int] = []
    store.download("file", tmp_path / "got", len(content), seen.append)
    assert (tmp_path / "got").read_bytes() == content
    assert sum(seen) == len(content)
    assert failure(lambda: store.download("file", tmp_path / "got", 7, seen.append)) == "NOT_FOUND"
    assert failure(lambda: store.download("none", tmp_path / "got", 7, seen.append)) == "NOT_FOUND"
    with pytest.raises(FileNotFoundError):
        store.upload("file", tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        store.download("file", tmp_path / "none" / "f", len(content), seen.append)


@pytest.mark.parametrize(
    "key",
    ["", "/etc/passwd", "../out", "a/../../out", "a//b", "./a", ".staged/a", "a/.b", "a/", "a\0b", "..\\out", "\ud800"],
)
def test_no_key_leads_out_or_to_what_is_no_object(store: FolderStore, key: str, tmp_path: Path) -> None:
    for call in (store.read, store.read_version, store.delete, store.size):
        assert failure(lambda call=call: call(key)) == "DENIED"  # type: ignore[misc]
    for write in (store.write, store.create, lambda key, data: store.replace(key, data, "v")):
        assert failure(lambda write=write: write(key, b"x")) == "DENIED"  # type: ignore[misc]
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=8), st.binary(max_size=8))
def test_any_name_is_an_object_of_this_folder_or_refused(
    tmp_path_factory: pytest.TempPathFactory, key: str, data: bytes
) -> None:
    root = tmp_path_factory.getbasetemp() / "any-name"
    store = FolderStore(root / "store", durable=False)
    try:
        store.write(key, data)
    except ObjectStoreError:
        assert list(store.list("")) == []
    else:
        assert store.read(key) == data
        assert [each.key for each in store.list("")] == [key]
        store.delete(key)
    assert {each.name for each in root.iterdir()} <= {"store"}


@pytest.mark.parametrize(
    ("error", "expected"),
    [(OSError(errno.ENOSPC, "No space left on device"), "UNAVAILABLE"), (PermissionError(13, "no"), "DENIED")],
)
@pytest.mark.parametrize("method", ["write", "create", "replace"])
def test_a_write_that_fails_leaves_the_old_object_and_nothing_else(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch, method: str, error: OSError, expected: str
) -> None:
    version = store.create("one", b"old")
    calls = {
        "write": lambda: store.write("one", b"new"),
        "create": lambda: store.create("two", b"new"),
        "replace": lambda: store.replace("one", b"new", version),
    }

    def fail(_: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    assert failure(calls[method]) == expected
    assert store.read("one") == b"old"
    assert store.size("two") is None
    assert staged(store) == []


def test_what_is_written_is_flushed_before_it_is_there_and_its_folder_afterwards(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[tuple[str, bool]] = []
    folder = Path(store.url)
    fsync = os.fsync

    def note(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        name = "the staged file" if path.parent.name == STAGED else path.name
        flushed.append((name, (folder / "models" / "one").exists()))
        fsync(descriptor)

    version = store.create("models/zero", b"0")
    monkeypatch.setattr(os, "fsync", note)
    store.create("models/one", b"1")
    assert flushed == [("the staged file", False), ("models", True)]
    flushed.clear()
    store.replace("models/zero", b"1", version)
    store.write("models/zero", b"2")
    assert [name for name, _ in flushed] == 2 * ["the staged file", "models"]
    flushed.clear()
    FolderStore(folder, durable=False).write("models/one", b"2")
    assert flushed == []


def test_what_ended_processes_left_is_removed_in_time_and_what_others_write_is_not(store: FolderStore) -> None:
    store.write("one", b"1")
    left, new = Path(store.url, STAGED, "left"), Path(store.url, STAGED, "new")
    for file in (left, new):
        file.write_bytes(b"half")
    old = new.stat().st_mtime - LEFT_S - 10
    os.utime(left, (old, old))
    store.write("one", b"2")
    assert staged(store) == [new]
    assert [each.key for each in store.list("")] == ["one"]


def test_of_many_who_replace_a_version_one_does(store: FolderStore) -> None:
    """Threads on stores of their own, as processes would be, each time from the same version."""
    stores = [FolderStore(Path(store.url), durable=False) for _ in range(8)]
    version = store.create("one", b"")
    begin = threading.Barrier(len(stores))

    def attempt(number: int, turn: int, version: str) -> str | None:
        begin.wait(30)
        try:
            return stores[number].replace("one", f"{turn} {number}".encode(), version)
        except ObjectStoreError as error:
            return None if error.failure == "CONFLICT" else error.failure

    with ThreadPoolExecutor(len(stores)) as threads:
        for turn in range(20):
            attempts = [threads.submit(attempt, number, turn, version) for number in range(len(stores))]
            (version,) = filter(None, [each.result(60) for each in attempts])
            assert store.read_version("one").version == version
    assert staged(store) == []


def test_a_folder_or_a_bucket_is_opened_by_its_name(tmp_path: Path) -> None:
    store = open_store_or_folder("SIE_X", str(tmp_path / "new"), {})
    store.write("one", b"1")
    assert (tmp_path / "new" / "one").read_bytes() == b"1"
    with pytest.raises(PluginError, match=r"SIE_X='pigeon://coop': no installed plugin serves pigeon://"):
        open_store_or_folder("SIE_X", "pigeon://coop", {})
    with pytest.raises(PluginError, match=r"SIE_X=.* is no folder; name one"):
        open_store_or_folder("SIE_X", str(tmp_path / "new" / "one"), {})
