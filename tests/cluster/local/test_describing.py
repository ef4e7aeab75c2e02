"""The programs of a cluster find one another in folders of any length, and leave nothing outside of them."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from sie_core.cluster.ipc.listening import listen_on
from sie_core.cluster.local.bundles import local_bundles
from sie_core.cluster.local.programs import describe_programs
from sie_core.defaults import BUILTINS
from sie_core.plugins import discover
from sie_core.settings import Settings


@pytest.mark.parametrize("length", [70, 91, 92, 97, 99, 100, 140])
def test_workers_can_listen_on_their_sockets(length: int) -> None:
    with tempfile.TemporaryDirectory() as short:
        folder = Path(short) / ("f" * (length - len(short) - 1))
        folder.mkdir()
        settings = Settings()
        with ExitStack() as files:
            plugins = discover(settings, BUILTINS)
            bundles = local_bundles(settings, plugins, folder, ())
            programs = describe_programs(settings, plugins, folder, 12, files, bundles=bundles, config_port=1)
            paths = [Path(worker._variables["SIE_IPC_SOCKET_PATH"]) for worker in programs.workers]
            for path in paths:
                listen_on(path).close()
        assert len(set(paths)) == 12
        assert all(path.parent == folder or not path.parent.exists() for path in paths)
