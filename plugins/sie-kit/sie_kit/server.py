"""The real engine under the real API, inside a test: over HTTP on a free port, until the test is done.

It minds starting and stopping only; requests are sent with any HTTP client.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any

import uvicorn

from sie_core.api import create_app
from sie_core.defaults import BUILTINS
from sie_core.engine import Engine, build_engine
from sie_core.engine.timeouts import DEFAULT_TIMEOUTS, Timeouts
from sie_core.plugins import PluginSet, discover
from sie_core.settings import load_settings

START_LIMIT_S = 120.0
"""Seconds that a server may take to start, and to end."""


@dataclass(frozen=True, slots=True)
class Served:
    """A server that runs."""

    url: str
    engine: Engine
    """Read its `metrics`; its other methods belong to `loop`."""
    loop: asyncio.AbstractEventLoop
    """The server's event loop, on its own thread: `asyncio.run_coroutine_threadsafe(engine.load("acme/letters"),
    loop)`.
    """


@contextmanager
def serving(
    *, timeouts: Timeouts = DEFAULT_TIMEOUTS, plugin_set: PluginSet | None = None, **settings: Any
) -> Iterator[Served]:
    """Serve the installed plugins' models on a free port of this machine.

    Args:
        timeouts: Every wait of the engine; a test may shorten some.
        plugin_set: The plugins to serve by; None discovers those installed.
        settings: Settings by field, which override the environment: `serving(preload_models=("acme/letters",))`.

    Raises:
        PluginError: The installed plugins cannot be used together.
        SettingsError: A setting is not allowed, or names an unknown model.
        TimeoutError: It does not start within two minutes.
    """
    chosen = load_settings(**settings)
    plugins = discover(chosen, BUILTINS) if plugin_set is None else plugin_set
    engine = build_engine(chosen, plugins, gated=True, timeouts=timeouts)
    app = create_app(engine, chosen, registry=engine.metrics.registry)
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None, access_log=False))
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        running = _Running(server, engine, listener)
        running.start()
        try:
            loop = running.wait_until_ready()
            yield Served(f"http://127.0.0.1:{listener.getsockname()[1]}", engine, loop)
        finally:
            server.should_exit = True
            running.join(START_LIMIT_S)


class _Running(Thread):
    """The event loop of one server, on a separate thread."""

    def __init__(self, server: uvicorn.Server, engine: Engine, listener: socket.socket) -> None:
        super().__init__(name="sie-serving", daemon=True)
        self._server = server
        self._engine = engine
        self._listener = listener
        self._ready = Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: BaseException | None = None

    def run(self) -> None:
        """Serve until the server is stopped."""
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
            self._ready.set()

    async def _serve(self) -> None:
        await self._engine.start()
        self._loop = asyncio.get_running_loop()
        try:
            self._ready.set()
            await self._server.serve(sockets=[self._listener])
        finally:
            await self._engine.close()

    def wait_until_ready(self) -> asyncio.AbstractEventLoop:
        """Wait until the models to preload are loaded; connections are taken from then on."""
        if not self._ready.wait(START_LIMIT_S):
            raise TimeoutError(f"the server has not started after {START_LIMIT_S:.0f} s")
        if self._failure is not None:
            raise self._failure
        assert self._loop is not None
        return self._loop
