"""A full disk in any step of a write: nothing is lost, and once there is room a repeated request is answered."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from sie_cluster.config_service.service import ConfigService

from sie_core.folder_store import FolderStore
from tests.config_service.conftest import SHIPPED, base, placement, post, refused
from tests.config_service.crashes.processes import until


@pytest.mark.parametrize("full_after", ["validated", "stored"])
def test_on_a_full_disk_a_write_is_refused_and_done_once_there_is_room(
    disk: Callable[..., Path], full_after: str
) -> None:
    folder = disk("1m")
    filler, fills = folder / "filler", [False]

    def step(name: str) -> None:
        if name == full_after and fills[0]:
            with contextlib.suppress(OSError):
                filler.write_bytes(bytes(2**21))

    store = FolderStore(folder / "store")
    service = ConfigService(base(SHIPPED), placement(), store, owner="one", lasts_s=30.0, step=step)
    service.start()
    service.create(post("org/a"))
    fills[0] = True
    error = refused(lambda: service.create(post("org/b"), "key"))
    assert (error.code, error.spec.status, str(folder) in str(error)) == ("CONFIG_STORE_UNAVAILABLE", 503, False)
    service.look()
    assert service.state == "standby"
    assert "No space left on device" in str(service.problem)
    fills[0] = False
    filler.unlink()
    until(lambda: service.look() is None and service.state == "leading", "it does not go on")
    assert service.problem is None
    assert service.create(post("org/b"), "key").body["epoch"] == 2
    assert service.registry.epochs == {"org/a": 1, "org/b": 2}
    service.stop()
    again = ConfigService(base(SHIPPED), placement(), store, owner="one", lasts_s=30.0)
    again.start()
    assert again.create(post("org/b"), "key").body["epoch"] == 2
    assert again.registry.epochs == {"org/a": 1, "org/b": 2}
    again.stop()
