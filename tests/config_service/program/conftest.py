"""Config services as their users start them: `sie config serve`, in a process of its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from sie_bundle.bundles.reading import shipped_bundles

from tests.conftest import Server, run_server

TOKENS = {"SIE_ADMIN_TOKEN": "the-admin", "SIE_CONFIG_READ_TOKEN": "the-follower", "SIE_AUTH_TOKEN": "the-client"}
ADMIN = {"Authorization": "bearer the-admin"}


def config_server(
    folder: Path, env: Mapping[str, str] | None = None, *, ready: bool = True, prefix: tuple[str, ...] = ()
) -> AbstractContextManager[Server]:
    return run_server(folder, env, ready=ready, prefix=prefix, command=("config", "serve"))


@pytest.fixture(scope="package")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the service's bundles: those that ship; tests leave it as it is."""
    return Path(shutil.copytree(shipped_bundles(), tmp_path_factory.mktemp("bundles") / "bundles"))


@pytest.fixture(scope="package")
def server(bundles: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service with a token of each kind; tests leave no model in it."""
    env = {**TOKENS, "SIE_BUNDLES_DIR": str(bundles)}
    with config_server(tmp_path_factory.mktemp("config"), env) as server:
        yield server
