"""The routes with the installed plugins, for tests that need no socket: over the engine, and over a queue."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import httpx

from sie_core.settings import Settings
from tests.cluster.in_process import running

Over = Literal["engine", "queue"]
OVER: tuple[Over, ...] = ("engine", "queue")
"""The backends that every route gives the same answers over."""


@asynccontextmanager
async def serving(settings: Settings, over: Over = "engine") -> AsyncIterator[httpx.AsyncClient]:
    """Serve until the end of the block; its models are loaded on entry."""
    chosen = {name: getattr(settings, name) for name in settings.model_fields_set}
    with tempfile.TemporaryDirectory() as folder:
        async with running(Path(folder), **chosen) as cluster:
            yield cluster.alone if over == "engine" else cluster.client
