"""Reads the store of an earlier release: a lease that names the last of a chain of commits, and snapshots."""

from __future__ import annotations

import hashlib
import logging
from typing import Any

import orjson

from sie_cluster.config_service.store.records import Backup, Entry, StoreDamaged, Write, parse
from sie_core.contracts import ObjectStore, ObjectStoreError

log = logging.getLogger(__name__)


def read_old_form(store: ObjectStore) -> Backup | None:
    """Return what the store holds as a backup, without the answers to repeated requests; None where it holds nothing.

    Raises:
        StoreDamaged: Objects are missing or not what they were.
        ObjectStoreError: The store failed.
    """
    lease = _read(store, "lease")
    if lease is None:
        return None
    try:
        head = orjson.loads(orjson.loads(lease)["value"] or b"{}")
        models, epochs = _replayed(store, head)
        entries = [_entry(id_, model, epochs[id_]) for id_, model in models.items()]
        found = Backup(epoch=head.get("epoch", 0), entries=sorted(entries, key=lambda each: each.epoch))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _damaged(store, f"{type(error).__name__}: {error}") from None
    log.info(
        "%s holds %d models in the form of an earlier release, of epoch %d: they are taken over. No service of that "
        "release may run on it any more; `lease`, `commits` and `snapshots` can be removed afterwards",
        store.url,
        len(entries),
        found.epoch,
    )
    return found


def _replayed(store: ObjectStore, head: dict[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the models, and the epochs of their last changes."""
    models: dict[str, Any] = {}
    epochs: dict[str, int] = {}
    number = 0
    if head.get("snapshot"):
        snapshot = _pointed(store, head["snapshot"])
        models, epochs, number = snapshot["models"], snapshot["epochs"], snapshot["number"]
    commits, pointer = [], head.get("commit")
    while pointer and pointer["number"] > number:
        commits.append(_pointed(store, pointer))
        pointer = commits[-1].get("parent")
    for commit in reversed(commits):
        if (model_id := commit.get("model_id")) is None:
            continue
        models.pop(model_id, None)
        if commit["model"] is not None:
            models[model_id], epochs[model_id] = commit["model"], commit["epoch"]
    return models, epochs


def _entry(model_id: str, model: Any, epoch: int) -> Entry:
    written = {"id": f"taken over at {epoch}", "model_id": model_id, "model": model}
    return Entry(epoch=epoch, write=parse(Write, orjson.dumps(written), model_id))


def _pointed(store: ObjectStore, pointer: dict[str, Any]) -> dict[str, Any]:
    data = _read(store, pointer["key"])
    if data is None:
        raise _damaged(store, f"{pointer['key']} is missing")
    if hashlib.sha256(data).hexdigest() != pointer["sha256"]:
        raise _damaged(store, f"{pointer['key']} was changed")
    found: dict[str, Any] = orjson.loads(data)
    return found


def _read(store: ObjectStore, key: str) -> bytes | None:
    try:
        return store.read(key)
    except ObjectStoreError as error:
        if error.failure == "NOT_FOUND":
            return None
        raise


def _damaged(store: ObjectStore, why: str) -> StoreDamaged:
    return StoreDamaged(
        f"SIE_CONFIG_STORE_DIR={store.url} is damaged: {why:.500}. Put a backup of the whole folder in its place; or "
        "start once with SIE_CONFIG_RESTORE=false, which begins without the models that it holds."
    )
