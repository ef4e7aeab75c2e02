"""Config services as their users start them: `sie config serve`, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.conftest import Server, run_server

TOKENS = {"SIE_ADMIN_TOKEN": "the-admin", "SIE_CONFIG_READ_TOKEN": "the-follower", "SIE_AUTH_TOKEN": "the-client"}


def config_server(
    folder: Path, env: Mapping[str, str] | None = None, *, ready: bool = True, prefix: tuple[str, ...] = ()
) -> AbstractContextManager[Server]:
    return run_server(folder, env, ready=ready, prefix=prefix, command=("config", "serve"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service with a token of each kind."""
    with config_server(tmp_path_factory.mktemp("config"), TOKENS) as server:
        yield server
