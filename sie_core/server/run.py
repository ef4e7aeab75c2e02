"""The standalone server: engine and API in one process under uvicorn.

It puts the parts together and minds the order they start and stop in; it must not know routes or batches.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import uvicorn
from prometheus_client import GCCollector, PlatformCollector, ProcessCollector

from sie_core.api import SOCKETS, Browsers, Gate, allowed_hosts, create_app, error_response
from sie_core.catalog import build_catalog, open_folder
from sie_core.catalog.sources.watcher import CatalogWatch
from sie_core.engine import Engine, build_engine
from sie_core.plugins import PluginSet
from sie_core.serving.connections import Connection
from sie_core.serving.listening import BACKLOG, address_of, listen, url_of
from sie_core.serving.stopping import Stopping
from sie_core.settings import Settings, SettingsError

log = logging.getLogger("sie_core.server")

KEEP_ALIVE_S = 75
"""How long an idle connection is kept: longer than the 60 s of common load balancers, which otherwise send a request
into a connection that is just being closed."""
COLLECT_EVERY = (50_000, 20, 100)
"""Thresholds of Python's garbage collection. With its own, torch and transformers cost a full pass over 400 000 objects
every few seconds under load, in which everything stands still for 200 ms, and a quarter of the time a load takes.
Reference counts free what requests leave behind; cycles are rare."""
LAST_WORDS_S = 2
"""How long connections get to close once every inference request is answered."""

MAX_MESSAGE_BYTES = 65_536
"""Of a message on a WebSocket, where clients have nothing to say."""

OnReady = Callable[[str], None]


def serve(settings: Settings, plugins: PluginSet, on_ready: OnReady = lambda url: None) -> None:
    """Serve until a signal.

    Args:
        settings: The settings in force.
        plugins: What is installed.
        on_ready: Called with the URL once new requests are welcome, with every model to preload loaded.

    Raises:
        ListenError: The address cannot be listened on.
        PluginError: Something chosen by a setting is not installed.
        SettingsError: The models folder cannot be read, a setting names what is not there, or no folder for temporary
            files can be written to.
    """
    _require_temporary_folder()
    gc.set_threshold(*COLLECT_EVERY)
    with contextlib.closing(listen(settings.http_host, settings.http_port)) as listener:
        factory = uvicorn.Config("", log_config=None).get_loop_factory()
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(_serve(settings, plugins, listener, on_ready))


def _require_temporary_folder() -> None:
    """Refuse the start where no model could be loaded: torch wants a temporary folder as soon as it is imported."""
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        raise SettingsError(
            "No folder for temporary files can be written to, and the libraries that load models need one: set TMPDIR "
            "to a folder that can be, or mount one at /tmp (in Kubernetes an emptyDir)."
        ) from None


async def _serve(settings: Settings, plugins: PluginSet, listener: socket.socket, on_ready: OnReady) -> None:
    folder = open_folder(settings, plugins)
    catalog = build_catalog(settings, plugins, folder=folder)
    engine = build_engine(settings, plugins, catalog)
    gate = Gate.of(settings)
    registry = engine.metrics.registry
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    browsers = Browsers(settings.cors_origins, allowed_hosts(settings, listener.getsockname()[0]))
    server = _Server(create_app(engine, settings, registry=registry, gate=gate, browsers=browsers))
    Stopping(gate, settings.drain_timeout_s, server.stop).install()
    watch = CatalogWatch(
        folder,
        lambda before: build_catalog(settings, plugins, folder=folder, before=before),
        lambda: engine.catalog,
        engine.follow,
        engine.note,
    )
    watching = asyncio.create_task(watch.run())
    opening = asyncio.create_task(_open(engine, server, listener, on_ready))
    try:
        await server.serve(sockets=[listener])
        if opening.done():
            opening.result()
    finally:
        watching.cancel()
        opening.cancel()
        await engine.close()
        log.info("stopped")


async def _open(engine: Engine, server: _Server, listener: socket.socket, on_ready: OnReady) -> None:
    """Start the engine while the server answers already: probes see it start, and inference waits its turn."""
    try:
        await server.listening.wait()
        log.info("listening on %s", address_of(listener))
        await engine.start()
        problem = engine.health().ready_problem
        if problem is None:
            on_ready(url_of(listener))
        else:
            log.error("not ready: %s", problem)
    except Exception:
        server.stop()
        raise


class _Server(uvicorn.Server):
    """Uvicorn without its signal handlers, and with a word when it listens."""

    def __init__(self, app: Any) -> None:
        config = uvicorn.Config(
            app,
            http=partial(Connection, refusal=partial(error_response, scope={"path": "/v1/"}), sockets=SOCKETS),  # type: ignore[arg-type]
            ws="none",
            ws_max_size=MAX_MESSAGE_BYTES,
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=LAST_WORDS_S,
        )
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        self.listening.set()

    def stop(self) -> None:
        """Close the listening socket and the connections, and return from `serve`."""
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to `Stopping`."""
        yield
