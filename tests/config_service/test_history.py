"""What a store holds: commits and snapshots, swept in time, copied as a backup, and refused where it is damaged."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from sie_cluster.config_service.history import history
from sie_cluster.config_service.history.history import StoreDamaged
from sie_cluster.config_service.history.lease import LeaseDamaged
from sie_cluster.config_service.history.records import Commit, StoredModel
from sie_cluster.config_service.leading import LOOKS
from sie_cluster.config_service.service import ConfigService

from sie_core.contracts import ObjectStoreError, VersionedObject
from sie_core.folder_store import FolderStore
from tests.config_service.conftest import Start, Told, error_of, post
from tests.config_service.crashes.processes import until


def held(service: ConfigService) -> dict[str, Any]:
    """What it exports, but for the time."""
    told: dict[str, Any] = orjson.loads(service.export())
    del told["generated_at"]
    return told


def fill(service: ConfigService, count: int) -> None:
    """Write, look after the lease, and wait for a snapshot, `count` times."""
    for number in range(count):
        service.create(post(f"org/m{number}"), f"key {number}")
        if number % 3 == 2:
            service.delete(f"org/m{number - 1}")
        service.look()
        service._snapshots.stop()


def test_a_start_finds_everything_as_it_was(start: Start) -> None:
    service = start()
    fill(service, 7)
    service.put("org/shipped", post("org/shipped"))
    service.delete("org/shipped")
    before = held(service)
    service.stop()
    assert held(start()) == before
    assert before["epoch"] == 11


def test_a_start_reads_a_snapshot_and_few_commits_and_what_is_older_goes(
    start: Start, store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "SNAPSHOT_EVERY", 4)
    service = start()
    store.write("commits/000000000001-000000000001-9-left.json", b"of a crash")
    fill(service, 30)
    before = held(service)
    objects = [each.key for each in store.list("")]
    assert len(objects) < 16
    assert not any("-left" in key for key in objects)
    service.stop()
    read: list[str] = []
    monkeypatch.setattr(FolderStore, "read", lambda self, key: read.append(key) or (Path(self.url) / key).read_bytes())
    service = start()
    assert held(service) == before
    assert len([key for key in read if key.startswith("commits/")]) <= 5
    fill(service, 2)
    assert service.create(post("org/m29"), "key 29").body["epoch"] == 39


def test_a_copy_of_the_folder_is_a_backup(start: Start, tmp_path: Path) -> None:
    service = start()
    fill(service, 3)
    before = held(service)
    shutil.copytree(tmp_path / "store", tmp_path / "backup")
    fill(service, 9)
    service.stop()
    now = [0.0]
    restored = start(FolderStore(tmp_path / "backup"), clock=lambda: now[0])
    assert (restored.state, restored.owner) == ("standby", "one")
    now[0] += 100
    restored.look()
    assert held(restored) == before


def test_the_newest_change_is_told_again_after_a_start(start: Start) -> None:
    service = start()
    service.create(post("org/a"))
    service.create(post("org/b"))
    service.stop()
    told = Told()
    service = start(publish=told)
    service.look()
    service.look()
    assert [(each.epoch, each.model_id, each.affected_bundles) for each in told] == [(2, "org/b", ("fast", "slow"))]


def tip(folder: Path) -> Path:
    return max(folder.glob("commits/*"))


def edit(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(file.read_bytes())
    change(content)
    file.write_text(json.dumps(content))


def edit_head(folder: Path, **changes: Any) -> None:
    def change(lease: dict[str, Any]) -> None:
        lease["value"] = json.dumps({**json.loads(lease["value"]), **changes})

    edit(folder / "lease", change)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "commits/.* is missing": lambda folder: tip(folder).unlink(),
    "commits/.* was changed": lambda folder: edit(tip(folder), lambda commit: commit.update(epoch=9)),
    "the commits lead to 3": lambda folder: edit_head(folder, epoch=2),
    "the lease's value: epoch: -1": lambda folder: edit_head(folder, epoch=-1),
    "the lease's value is no JSON": lambda folder: edit(folder / "lease", lambda lease: lease.update(value="{")),
    "the lease was removed": lambda folder: (folder / "lease").unlink(),
}


@pytest.mark.parametrize("said", DAMAGES)
def test_a_damaged_store_stops_the_start_and_says_how_to_repair_it(start: Start, tmp_path: Path, said: str) -> None:
    service = start()
    fill(service, 2)
    service.delete("org/m0")
    service.stop()
    DAMAGES[said](tmp_path / "store")
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=rf"(?s){said}.*backup of the whole folder.*SIE_CONFIG_RESTORE=false"):
            start()
    service = start(restore=False)
    assert service.sources == {"org/shipped": "filesystem"}
    assert service.registry.catalog.config_epoch == 3
    assert service.create(post("org/new")).body["epoch"] == 4
    service.stop()
    assert set(start().sources) == {"org/shipped", "org/new"}


def test_a_damaged_lease_stops_the_start(start: Start, tmp_path: Path) -> None:
    start().stop()
    (tmp_path / "store" / "lease").write_bytes(b"{")
    with pytest.raises(LeaseDamaged, match="restore it from a backup"):
        start()


def test_without_restoring_it_begins_with_nothing_at_the_same_epoch(start: Start) -> None:
    service = start()
    fill(service, 3)
    service.stop()
    service = start(restore=False)
    assert (set(service.sources), service.registry.catalog.config_epoch) == ({"org/shipped"}, 4)
    service.create(post("org/new"))
    service.stop()
    service = start()
    assert (set(service.sources), service.registry.catalog.config_epoch) == ({"org/shipped", "org/new"}, 5)


def test_a_store_that_is_damaged_while_it_stands_by_ends_the_service(start: Start, tmp_path: Path) -> None:
    service = start()
    fill(service, 2)
    other = start(owner="other")
    service.stop()
    tip(tmp_path / "store").unlink()
    other.look()
    assert other.state == "stopped"
    assert "is damaged" in str(other.problem)


def test_a_model_that_can_no_longer_be_used_is_kept_and_the_others_are_served(start: Start) -> None:
    """As after an upgrade that refuses what it took before."""
    service = start()
    service.create(post("org/b"))
    refused = StoredModel(text="", content={**orjson.loads(post("org/a")), "colour": "red"})
    service._history.commit(Commit(number=2, epoch=2, model_id="org/a", model=refused))
    service.stop()
    service = start()
    assert set(service.sources) == {"org/shipped", "org/b"}
    assert "`colour` is no field" in service.registry.catalog.problems[0].message
    service.put("org/a", post("org/a"))
    assert service.registry.catalog.problems == ()
    assert service.registry.resolve("org/a").bundle == "fast"


def test_the_lease_is_kept_while_a_start_takes_longer_than_it_lasts(start: Start, store: FolderStore) -> None:
    class Slow(FolderStore):
        """Gives a commit once the lease was renewed for longer than it lasts."""

        def read(self, key: str) -> bytes:
            end = time.monotonic() + 60
            while key != "lease" and json.loads(super().read("lease"))["writes"] < LOOKS + 1:
                assert time.monotonic() < end, "the lease is not renewed"
                time.sleep(0.01)
            return super().read(key)

    service = start()
    service.create(post("org/a"))
    service.stop()
    service = start(Slow(Path(store.url), durable=False), lasts_s=2.0)
    assert service.state == "leading"
    assert service.sources["org/a"] == "api"


def test_a_store_that_cannot_be_used_stops_the_start_and_names_the_setting(start: Start) -> None:
    with pytest.raises(ObjectStoreError, match=r"SIE_CONFIG_STORE_DIR: .*this process may read and write"):
        start(FolderStore(Path("/proc/nowhere")))


def test_a_store_that_is_away_at_the_start_is_waited_for_and_the_reason_is_told(start: Start, tmp_path: Path) -> None:
    class Away(FolderStore):
        away = True

        def read_version(self, key: str) -> VersionedObject:
            if self.away:
                raise ObjectStoreError("UNAVAILABLE", f"{self.url} cannot be reached")
            return super().read_version(key)

    store = Away(tmp_path / "store", durable=False)
    service = start(store)
    assert (service.state, service.problem) == ("standby", f"{store.url} cannot be reached")
    assert error_of(service.export) == error_of(lambda: service.create(post("org/a"))) == "config_standby"
    store.away = False
    until(lambda: service.state == "leading", "the store that is back is not read")
    assert service.problem is None
    assert service.create(post("org/a")).body["epoch"] == 1
