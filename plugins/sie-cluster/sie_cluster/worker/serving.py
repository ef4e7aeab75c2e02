"""Engine and intake of an adapter process: puts them together, starts and stops them."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NoReturn

from sie_cluster.messages.export import Export
from sie_cluster.messages.health import encode_vitals
from sie_cluster.messages.status import WorkerStatus, encode_status
from sie_cluster.messages.work import batch_bytes
from sie_cluster.programs.own_url import own_url
from sie_cluster.programs.probes import probes, refusal, tell_of_process
from sie_cluster.programs.processes import Program
from sie_cluster.settings import ClusterSettings
from sie_cluster.worker.configs import Configs
from sie_cluster.worker.intake import Intake
from sie_cluster.worker.vitals import to_the_minute, vitals_of
from sie_core.api.ops.status import PATH, Watched, status_route
from sie_core.auth import Auth
from sie_core.catalog import build_catalog, open_folder
from sie_core.catalog.configs.snapshot import listed_id
from sie_core.catalog.sources.folder import ModelsFolder
from sie_core.catalog.sources.watcher import CatalogWatch
from sie_core.concurrency.tasks import supervised
from sie_core.engine import Engine, build_engine
from sie_core.plugins import PluginSet
from sie_core.serving.draining import Drain
from sie_core.serving.http_server import HttpServer
from sie_core.serving.listening import address_of
from sie_core.tracing import make_tracer

log = logging.getLogger("sie_core.worker")

SIDECAR_S = 5.0
"""How long the sidecar may take to end once all is answered."""
TELL_S = 1.0
"""Between two looks whether there is something to tell the sidecar, and whether there is one."""
MOST_TOLD = 500
"""Models that gateways are told of: a heartbeat is one message, and to describe thousands would hold up work."""
OnReady = Callable[[], None]


async def answer_slices(
    settings: ClusterSettings,
    plugins: PluginSet,
    listener: socket.socket,
    entry: socket.socket,
    on_ready: OnReady,
    sidecar: Program | None,
) -> None:
    """Answer slices until a signal.

    Args:
        settings: The settings in force.
        plugins: What is installed.
        listener: Where probes are answered.
        entry: Where sidecars connect.
        on_ready: Called once work is welcome, with every model to preload loaded.
        sidecar: The one that drains with this process.

    Raises:
        PluginError: Something chosen by a setting is not installed.
        SettingsError: As for the standalone server.
    """
    auth, url, tracer = Auth.of(settings), own_url(listener), make_tracer(settings, "sie-worker")
    folder = None if settings.config_service_url else open_folder(settings, plugins)
    first = build_catalog(settings, plugins, folder=folder, export=None if folder else Export(0))
    engine = build_engine(settings, plugins, first, gated=True)
    tell_of_process(engine.metrics.registry)

    def configs_came(problem: str | None) -> None:
        engine.note(problem)
        if watching is not None and configs.state.epoch is not None:
            watching.cancel()  # what a sidecar brings is served in place of this machine's folder
        intake.tell_configs()

    configs = Configs(
        lambda export, before: build_catalog(settings, plugins, export=export, before=before),
        lambda: engine.catalog,
        engine.follow,
        configs_came,
        has_own=folder is not None,
    )
    # The sidecar drains with this process, and before it: what it has is answered by this one.
    on_close = (lambda: None) if sidecar is None else sidecar.terminate
    preloaded = frozenset(map(listed_id, settings.preload_models))
    intake = Intake(
        engine,
        lambda: encode_status(_status(engine, configs)),
        lambda: (engine.pipeline.queued_cost / settings.max_batch_cost, engine.pipeline.all_prepared),
        on_close,
        most_waiting=settings.max_concurrent_requests,
        batch_bytes=batch_bytes(settings),
        pin=engine.pin,
        configs=configs,
        tracer=tracer,
        vitals=lambda: encode_vitals(vitals_of(engine.status(), url, preloaded)),
    )
    watched = _watched(settings, engine, configs, intake)
    app = probes(
        lambda: engine.health().live_problem,
        lambda: _problem(engine, configs) or intake.problem,
        engine.metrics.registry,
        auth,
        [status_route(watched, auth)],
    )
    server = HttpServer(app, refusal, {PATH.encode()})
    Drain(intake, settings.drain_timeout_s, server.stop).install()
    works: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
        "telling sidecars": lambda: _tell(intake),
        "model configs": configs.run,
    }
    beside = [asyncio.create_task(supervised(what, work)) for what, work in works.items()]
    watching = None if folder is None else asyncio.create_task(_watch(settings, plugins, engine, folder))
    if watching is not None:
        beside.append(watching)
    try:
        log.info("listening on %s", address_of(listener))
        await server.serve_on(listener, partial(_start, engine, intake, entry, configs, on_ready))
    finally:
        if sidecar is not None:
            await sidecar.stop(SIDECAR_S)
        for task in beside:
            task.cancel()
        await engine.close()
        if tracer is not None:
            tracer.close()
        log.info("stopped")


async def _watch(settings: ClusterSettings, plugins: PluginSet, engine: Engine, folder: ModelsFolder) -> NoReturn:
    watch = CatalogWatch(
        folder,
        lambda before: build_catalog(settings, plugins, folder=folder, before=before),
        lambda: engine.catalog,
        engine.follow,
        engine.note,
    )
    await supervised("the models folder", watch.run)


async def _start(engine: Engine, intake: Intake, entry: socket.socket, configs: Configs, on_ready: OnReady) -> None:
    """Let sidecars connect, one of which may bring the configs, and start the engine once there are any."""
    await intake.listen(entry)
    await configs.there.wait()
    await engine.start()
    intake.tell()
    problem = _problem(engine, configs)
    if problem is None:
        on_ready()
    else:
        log.error("not ready: %s", problem)


async def _tell(intake: Intake) -> None:
    while True:
        await asyncio.sleep(TELL_S)
        await intake.look()


def _problem(engine: Engine, configs: Configs) -> str | None:
    """Say why no work is welcome."""
    return engine.health().ready_problem if configs.there.is_set() else configs.problem


def _status(engine: Engine, configs: Configs) -> WorkerStatus:
    problem = engine.health().live_problem or _problem(engine, configs)
    return WorkerStatus(problem is None, problem, to_the_minute(engine.known_models(MOST_TOLD)))


def _watched(settings: ClusterSettings, engine: Engine, configs: Configs, intake: Intake) -> Watched:
    """Say what `/ws/status` tells of this process."""
    most_cost = settings.max_concurrent_batches * settings.max_batch_cost
    return Watched(
        settings,
        lambda: (_problem(engine, configs) or intake.problem) is None,
        lambda: engine.known_models(MOST_TOLD),
        engine.status,
        lambda: max(intake.in_flight / settings.max_concurrent_requests, engine.pipeline.queued_cost / most_cost),
        settings.own_profile,
        lambda: configs.state.hash,
        lambda: intake.worker,
    )
