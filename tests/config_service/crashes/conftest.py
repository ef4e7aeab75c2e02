"""A folder and a real S3 gateway, and processes that write into either."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cache.conftest import disk
from tests.config_service.crashes.processes import Nursery, nursery
from tests.objectstore.conftest import s3, variables
from tests.objectstore.seaweed import BUCKET

__all__ = ["disk", "s3"]

_prefixes = itertools.count()


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store of each kind that no other test has."""
    if request.param == "folder":
        return str(tmp_path / "store")
    for name, value in variables(request.getfixturevalue("s3")).items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/configs{next(_prefixes)}"


@pytest.fixture(scope="session")
def processes(s3: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """Where services of their own run."""
    with nursery(tmp_path_factory.mktemp("services"), variables(s3)) as running:
        yield running
