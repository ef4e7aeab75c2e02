"""A full disk in a write: nothing is lost, and once there is room a repeated request is answered."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from sie_cluster.config_service import service as service_module

from sie_core.folder_store import FolderStore
from tests.config_service.conftest import log_on, post, refused, service_on


def test_on_a_full_disk_a_write_is_refused_and_done_once_there_is_room(
    disk: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "WRITE_S", 0.2)
    folder = disk("1m")
    filler, fills = folder / "filler", [False]

    def step(name: str) -> None:
        if name == "validated" and fills[0]:
            with contextlib.suppress(OSError):
                filler.write_bytes(bytes(2**21))

    store = FolderStore(folder / "store")
    service = service_on(log_on(store), step=step)
    service.read_on()
    service.create(post("org/a"))
    fills[0] = True
    error = refused(lambda: service.create(post("org/b"), "key"))
    assert (error.code, error.spec.status, str(folder) in str(error)) == ("CONFIG_STORE_UNAVAILABLE", 503, False)
    fills[0] = False
    filler.unlink()
    service.read_on()
    assert service.create(post("org/b"), "key").body["epoch"] == 2
    assert service.registry.epochs == {"org/a": 1, "org/b": 2}
    service.stop()
    again = service_on(log_on(store))
    again.read_on()
    assert again.create(post("org/b"), "key").body["epoch"] == 2
    assert again.registry.epochs == {"org/a": 1, "org/b": 2}
    again.stop()
