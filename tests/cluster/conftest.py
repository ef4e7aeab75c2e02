"""A whole cluster in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cluster.in_process import Cluster, running


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with running(tmp_path) as cluster:
        yield cluster
