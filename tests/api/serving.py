"""The routes over a real engine with the installed plugins, for tests that need no socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from sie_core.api import create_app
from sie_core.defaults import BUILTINS
from sie_core.engine import build_engine
from sie_core.plugins import discover
from sie_core.settings import Settings


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """Serve until the end of the block; its models are loaded on entry."""
    plugins = discover(settings, BUILTINS)
    engine = build_engine(settings, plugins)
    app = create_app(engine, settings, registry=engine.metrics.registry)
    await engine.start()
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://sie", timeout=30) as client:
        yield client
    await engine.close()
