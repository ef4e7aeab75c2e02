"""The standalone server: engine and API in one process; this module puts them together, starts and stops them."""

from __future__ import annotations

import asyncio
import logging
import socket
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Protocol

from prometheus_client import GCCollector, PlatformCollector, ProcessCollector

from sie_core.api import SOCKETS, Browsers, Gate, allowed_hosts, create_app, error_response
from sie_core.api.http.metrics import HttpMetrics
from sie_core.api.ops.status import own_profile
from sie_core.catalog import build_catalog, open_folder
from sie_core.catalog.sources.watcher import CatalogWatch
from sie_core.concurrency.tasks import supervised
from sie_core.contracts import Tracer
from sie_core.engine import Engine, build_engine
from sie_core.memory.heap import keep_trimmed
from sie_core.plugins import PluginSet
from sie_core.server.examples import announcement
from sie_core.serving.announcement import Announcement
from sie_core.serving.draining import Drain, RequestGate
from sie_core.serving.garbage import collect_seldom, keep_imported
from sie_core.serving.http_server import HttpServer, run_loop
from sie_core.serving.listening import address_of, url_of
from sie_core.settings import Settings, SettingsError
from sie_core.tracing import make_tracer

log = logging.getLogger("sie_core.server")

OnReady = Callable[[Announcement], None]
MOST_LOOKED_AT = 200
"""Models among which to look for the mentioned ones: there may be thousands."""


class FrontEnds(Protocol):
    """Other processes that take the requests for inference, which the engine of this one answers."""

    inner: socket.socket
    """Where this process listens for them, in place of the clients' address."""

    def join(
        self, engine: Engine, gate: Gate, metrics: HttpMetrics, profile: str | None, tracer: Tracer | None
    ) -> RequestGate:
        """Take what this process answers by, and the machine's profile; return what a signal closes."""
        ...

    async def run(self) -> None:
        """Keep the processes running until cancelled."""
        ...


def serve(
    settings: Settings,
    plugins: PluginSet,
    listener: socket.socket,
    on_ready: OnReady = lambda told: None,
    front_ends: FrontEnds | None = None,
) -> None:
    """Serve until a signal.

    Args:
        settings: The settings in force.
        plugins: What is installed.
        listener: The listening socket, which the caller closes.
        on_ready: Called with the announcement once new requests are welcome, with every model to preload loaded.
        front_ends: Take the clients' requests; None: this process does.

    Raises:
        PluginError: Something chosen by a setting is not installed.
        SettingsError: The models folder cannot be read, a setting names something unknown, or no temporary folder is
            writable.
    """
    require_temporary_folder()
    collect_seldom()
    keep_imported()
    run_loop(_serve(settings, plugins, listener, on_ready, front_ends))


def require_temporary_folder() -> None:
    """Refuse the start if there is no temporary folder: torch needs one at import, so no model could be loaded."""
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        raise SettingsError(
            "No folder for temporary files can be written to, and the libraries that load models need one: set TMPDIR "
            "to a folder that can be, or mount one at /tmp (in Kubernetes an emptyDir)."
        ) from None


async def _serve(
    settings: Settings,
    plugins: PluginSet,
    listener: socket.socket,
    on_ready: OnReady,
    front_ends: FrontEnds | None,
) -> None:
    folder = open_folder(settings, plugins)
    catalog = build_catalog(settings, plugins, folder=folder, hub=True)
    engine = build_engine(settings, plugins, catalog, gated=True, hub=True)
    gate = Gate.of(settings)
    registry, tracer = engine.metrics.registry, make_tracer(settings)
    metrics = HttpMetrics(registry)
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    browsers = Browsers(settings.cors_origins, allowed_hosts(settings, listener.getsockname()[0]))
    profile = own_profile(settings, engine.device.gpu_type)
    app = create_app(
        engine,
        settings,
        registry=registry,
        gate=gate,
        machine_profile=profile,
        browsers=browsers,
        tracer=tracer,
        metrics=metrics,
    )
    server = HttpServer(
        app, partial(error_response, scope={"path": "/v1/"}), SOCKETS, keep_alive_s=settings.http_keep_alive_s
    )
    drained = gate if front_ends is None else front_ends.join(engine, gate, metrics, profile, tracer)
    Drain(drained, settings.drain_timeout_s, server.stop).install()
    watch = CatalogWatch(
        folder,
        lambda before: build_catalog(settings, plugins, folder=folder, before=before, hub=True),
        lambda: engine.catalog,
        engine.follow,
        engine.note,
    )
    beside = [
        asyncio.create_task(supervised("the models folder", watch.run)),
        asyncio.create_task(supervised("returning memory", keep_trimmed)),
    ]
    if front_ends is not None:
        beside.append(asyncio.create_task(supervised("front ends", front_ends.run)))
    inner = listener if front_ends is None else front_ends.inner
    try:
        await server.serve_on(inner, partial(_start, engine, settings, listener, on_ready))
    finally:
        for task in beside:
            task.cancel()
        await engine.close()
        if tracer is not None:
            tracer.close()
        log.info("stopped")


async def _start(engine: Engine, settings: Settings, listener: socket.socket, on_ready: OnReady) -> None:
    """Start the engine; requests for inference wait until it has started."""
    log.info("listening on %s", address_of(listener))
    await engine.start()
    problem = engine.health().ready_problem
    if problem is None:
        known, needs_token = engine.known_models(MOST_LOOKED_AT), settings.auth_mode != "none"
        on_ready(announcement(url_of(listener), known, settings.default_model, needs_token=needs_token))
    else:
        log.error("not ready: %s", problem)
