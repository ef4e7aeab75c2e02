"""The backup is of the newest state, of whichever service was last; a failing store costs no write."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sie_cluster.config_service.store import backups as backups_module
from sie_cluster.config_service.store.backups import BackupKeeper, BackupStore
from sie_cluster.config_service.store.logs import ObjectLog
from sie_cluster.config_service.store.state import State

from sie_core.contracts import ObjectStoreError
from sie_core.folder_store import FolderStore
from tests.config_service.conftest import Start, post
from tests.config_service.crashes.processes import until


@contextmanager
def kept(store: FolderStore, state: State) -> Iterator[BackupKeeper]:
    """Keep backups of a state until the end of the block."""
    keeper = BackupKeeper(BackupStore(store), lambda: state)
    keeper.start()
    try:
        yield keeper
    finally:
        keeper.stop()


def states(start: Start) -> list[State]:
    service = start()
    found = []
    for number in range(3):
        service.create(post(f"org/m{number}"))
        found.append(service.state)
    return found


def epoch_of(store: FolderStore) -> int:
    epoch: int = json.loads(store.read("configs.json"))["epoch"]
    return epoch


def test_of_two_services_the_later_backup_stays(start: Start, tmp_path_factory: pytest.TempPathFactory) -> None:
    first, _, third = states(start)
    store = FolderStore(tmp_path_factory.mktemp("backup"), durable=False)
    with kept(store, first) as one, kept(store, third) as other:
        one.changed()
        until(lambda: one.epoch == 1, "no backup")
        other.changed()
        until(lambda: other.epoch == 3, "no backup")
    assert epoch_of(store) == 3
    assert ObjectLog(BackupStore(store)).read().last == 3


def test_a_backup_that_holds_more_than_the_log_is_left_as_it_is_and_told(
    start: Start, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backups_module, "AGAIN_S", 0.01)
    monkeypatch.setattr(backups_module, "BEHIND_S", 0.2)
    first, second, third = states(start)
    other = start(FolderStore(tmp_path_factory.mktemp("other"), durable=False))
    for number in range(5):
        other.create(post(f"org/other{number}"))
    store = FolderStore(tmp_path_factory.mktemp("backup"), durable=False)
    newest = [third]
    keeper = BackupKeeper(BackupStore(store), lambda: newest[0])
    keeper.start()
    try:
        keeper.changed()
        until(lambda: keeper.epoch == 3, "no backup")
        for lost in (first, second, other.state):  # the broker was put back; others wrote into it since
            newest[0] = lost
            keeper.changed()
            until(lambda: keeper.problem is not None, "nobody tells")
            assert "of epoch 3" in str(keeper.problem)
            assert epoch_of(store) == 3
            newest[0] = third
            keeper.changed()
            keeper.problem = None
    finally:
        keeper.stop()


def test_what_changed_last_is_kept_at_the_end(start: Start, tmp_path_factory: pytest.TempPathFactory) -> None:
    first, second, third = states(start)
    store = FolderStore(tmp_path_factory.mktemp("backup"), durable=False)
    newest = [first]

    class Slow(FolderStore):
        def replace(self, key: str, data: bytes, version: str) -> str:
            newest[0] = third
            keeper.changed()
            return super().replace(key, data, version)

    keeper = BackupKeeper(BackupStore(Slow(tmp_path_factory.mktemp("slow"), durable=False)), lambda: newest[0])
    keeper.start()
    keeper.changed()
    until(lambda: keeper.epoch == 1, "no backup")
    newest[0] = second
    keeper.changed()
    keeper.stop()
    assert keeper.epoch in (2, 3)
    keeper = BackupKeeper(BackupStore(store), lambda: third)
    keeper.stop()  # one that was never started ends


def test_a_store_that_fails_is_tried_again(
    start: Start, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backups_module, "AGAIN_S", 0.01)
    fails = threading.Event()
    fails.set()

    class Failing(FolderStore):
        def create(self, key: str, data: bytes) -> str:
            if fails.is_set():
                raise ObjectStoreError("UNAVAILABLE", "the disk is full")
            return super().create(key, data)

    store = Failing(tmp_path_factory.mktemp("backup"), durable=False)
    with kept(store, states(start)[-1]) as keeper:
        keeper.changed()
        until(lambda: keeper.problem == "the disk is full", "nobody tells")
        fails.clear()
        until(lambda: keeper.epoch == 3, "it is not tried again")
        assert keeper.problem is None


def test_a_start_without_restore_begins_with_nothing_above_the_epoch(store: FolderStore, start: Start) -> None:
    start().create(post("org/a"))
    empty = start(ObjectLog(BackupStore(store), restore=False))
    assert (empty.state.models, empty.state.epoch) == ({}, 1)
    assert empty.create(post("org/b")).body["epoch"] == 2
    assert list(start().state.models) == ["org/b"]
    (aside,) = (each.key for each in store.list("") if each.key != "configs.json")
    assert b"org/a" in store.read(aside)
