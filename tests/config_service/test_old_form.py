"""The store of an earlier release is taken over once, and a damaged one is refused by name."""

from __future__ import annotations

import hashlib
import json
import logging
from typing import Any

import pytest
from sie_cluster.config_service.store.records import StoreDamaged

from sie_core.folder_store import FolderStore
from tests.config_service.conftest import Start, log_on, post, service_on


def write(store: FolderStore, key: str, record: dict[str, Any]) -> dict[str, Any]:
    """Write an object as that release did; return what names it."""
    data = json.dumps({"format": 1, **record}).encode()
    store.write(key, data)
    return {"key": key, "sha256": hashlib.sha256(data).hexdigest(), "number": record["number"]}


def model(name: str, license_: str = "x") -> dict[str, Any]:
    content = json.loads(post(f"org/{name}", license=license_))
    return {"text": json.dumps(content), "content": content}


@pytest.fixture
def old(store: FolderStore) -> FolderStore:
    """A snapshot with two models, a commit that changes one, one that removes the other, one that keeps an answer."""
    answer = {"key": "k", "fingerprint": "f", "status": 200, "body": {}, "at": 1e9}
    snapshot = {"number": 2, "epoch": 2, "models": {"org/a": model("a"), "org/b": model("b")},
                "epochs": {"org/a": 1, "org/b": 2}, "answers": [answer]}  # fmt: skip
    pointer = write(store, "snapshots/2.json", snapshot)
    parent: dict[str, Any] | None = None
    for number, epoch, id_, written in (
        (3, 3, "org/a", model("a", "y")),
        (4, 4, "org/b", None),
        (5, 4, None, None),
    ):
        commit = {"number": number, "epoch": epoch, "model_id": id_, "model": written, "falls_back": False,
                  "answer": answer, "parent": parent}  # fmt: skip
        parent = write(store, f"commits/{number}.json", commit)
    head = {"format": 1, "epoch": 4, "number": 5, "commit": parent, "snapshot": pointer}
    lease = {"owner": "old", "token": "t", "fence": 3, "writes": 9, "lasts_s": 0.0, "value": json.dumps(head)}
    store.write("lease", json.dumps(lease).encode())
    return store


def test_what_an_earlier_release_kept_is_taken_over_once(
    old: FolderStore, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        service = start()
        assert {id_: kept.content["license"] for id_, kept in service.state.models.items()} == {"org/a": "y"}
        assert service.state.epoch == 4
        assert service.create(post("org/new")).body["epoch"] == 5
        assert start().registry.epochs == {"org/a": 3, "org/new": 5}
    assert sum("taken over" in each.message for each in caplog.records) == 1


def test_a_store_that_holds_nothing_is_no_backup(store: FolderStore, start: Start) -> None:
    store.write("lease", json.dumps({"value": ""}).encode())
    assert start().state.epoch == 0


@pytest.mark.parametrize(
    ("key", "content"),
    [
        *((key, content) for key in ("lease", "commits/4.json", "snapshots/2.json") for content in (b"{}", b"[")),
        ("commits/4.json", None),
        ("snapshots/2.json", None),
    ],
)
def test_a_damaged_one_is_refused_and_can_be_left_aside(old: FolderStore, key: str, content: bytes | None) -> None:
    old.delete(key)
    if content is not None:
        old.write(key, content)
    service = service_on(log_on(old))
    with pytest.raises(StoreDamaged, match="SIE_CONFIG_RESTORE=false"):
        service.read_on()
    assert not service.ready
