"""The gateway as a program: API and queue in one process; this module puts them together, starts and stops them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from sie_cluster.configs.follower import Follower
from sie_cluster.configs.metrics import FollowerMetrics
from sie_cluster.fleet.health.workers import Workers
from sie_cluster.gateway.backend import QueueBackend
from sie_cluster.gateway.capacity.numbers import CapacityNumbers
from sie_cluster.gateway.capacity.profiles import Profiles
from sie_cluster.gateway.configs import ENDPOINTS
from sie_cluster.gateway.flights.dispatcher import Dispatcher
from sie_cluster.gateway.keys import Keys
from sie_cluster.gateway.metrics import GatewayMetrics
from sie_cluster.gateway.pools.keeping import PoolKeeper
from sie_cluster.gateway.pools.leasing import Leasing
from sie_cluster.gateway.routing import Router, own_registry
from sie_cluster.gateway.sight.dialled import dialled_workers
from sie_cluster.programs.memory import gateway_bytes, with_memory
from sie_cluster.programs.probes import tell_of_process
from sie_cluster.queue.broker import Make, transport_maker
from sie_cluster.queue.payloads.store import open_payload_store
from sie_cluster.settings import ClusterSettings
from sie_core.api import SOCKETS, Browsers, Gate, allowed_hosts, create_app, error_response
from sie_core.auth import TokenSource
from sie_core.catalog import build_catalog, open_folder, require_one_source
from sie_core.catalog.sources.watcher import CatalogWatch
from sie_core.concurrency.tasks import supervised
from sie_core.plugins import PluginSet
from sie_core.serving.announcement import Announcement
from sie_core.serving.draining import Drain
from sie_core.serving.garbage import collect_seldom
from sie_core.serving.http_server import HttpServer, run_loop
from sie_core.serving.listening import address_of, listen, url_of
from sie_core.tracing import make_tracer

BODIES_PART = 1 / 4
"""Part of a gateway's memory for bodies of requests; one of the largest size always fits."""

log = logging.getLogger("sie_core.gateway")

OnReady = Callable[[Announcement], None]


def run_gateway(settings: ClusterSettings, plugins: PluginSet, on_ready: OnReady = lambda told: None) -> None:
    """Serve until a signal.

    Args:
        settings: The settings in force.
        plugins: What is installed.
        on_ready: Called with what to tell once the broker is reached.

    Raises:
        ListenError: The address cannot be listened on.
        PluginError: No plugin serves the URL of the broker or of the payload store.
        SettingsError: There is none, the models folder cannot be read or is set beside a config service, or no worker
            to dial is named.
        QueueError: The broker refuses this user.
    """
    collect_seldom()
    settings = with_memory(settings, plugins)
    make = transport_maker(settings, plugins)
    with contextlib.closing(listen(settings.http_host, settings.http_port)) as listener:
        run_loop(_serve(settings, plugins, make, listener, on_ready))


async def _serve(
    settings: ClusterSettings, plugins: PluginSet, make: Make, listener: socket.socket, on_ready: OnReady
) -> None:
    metrics, tracer = GatewayMetrics(), make_tracer(settings, "sie-gateway")
    tell_of_process(metrics.registry)
    store = open_payload_store(settings, plugins)
    dispatcher = Dispatcher(make, settings, metrics, store)
    workers = Workers(lambda before, now: backend.heard(before, now))
    profiles = Profiles(settings.gateway_configured_gpus, lambda: backend.provisioning.lanes.profiles())
    metrics.watch_workers(lambda: workers.reports().values())
    keys = Keys(lambda: [report.pulled for report in workers.reports().values()])
    follower, router = None, Router(settings.pool, None, profiles, keys)
    if settings.config_service_url is not None:
        require_one_source(settings)
        follower = Follower(
            settings, plugins, FollowerMetrics(metrics.registry), lambda registry: backend.follow(registry)
        )
    keeper = PoolKeeper(
        lambda: dispatcher.transport,
        workers,
        settings.pool_lease_s,
        lambda event, times: metrics.pool_events.labels(event).inc(times),
    )
    places, dialled = settings.gateway_max_concurrent_requests, dialled_workers(settings)
    backend = QueueBackend(
        dispatcher, workers, plugins, router, settings.gateway_timeout_s, follower, places, keeper, dialled
    )
    bodies = max(settings.max_request_body_bytes, int(gateway_bytes(settings) * BODIES_PART))
    gate = Gate(places, bodies, setting="SIE_GATEWAY_MAX_CONCURRENT_REQUESTS")
    metrics.registry.register(
        CapacityNumbers(
            backend.provisioning,
            backend.admission,
            lambda: workers.reports().values(),
            lambda: (profiles.known(), router.known.bundles if router.known else ()),
            leased=keeper.leased_gpus,
            default_profile=next(iter(settings.gateway_configured_gpus), None),
            refused=lambda: {("unknown", "", "profile"): profiles.refused, ("", "", "places"): gate.refused},
        )
    )
    browsers = Browsers(settings.cors_origins, allowed_hosts(settings, listener.getsockname()[0]))
    pools = Leasing(keeper, router, profiles, settings)
    app = create_app(
        backend,
        settings,
        registry=metrics.registry,
        gate=gate,
        places_requests=True,
        browsers=browsers,
        pools=pools,
        pool_tokens=[TokenSource.of(settings, "pool_token" if settings.pool_token else "admin_token")],
        routes=ENDPOINTS,
        tracer=tracer,
    )
    refusal = partial(error_response, scope={"path": "/v1/"})
    server = HttpServer(app, refusal, SOCKETS, keep_alive_s=settings.http_keep_alive_s)
    Drain(gate, settings.drain_timeout_s, server.stop).install()
    beside = {
        "model configs": _watch(settings, plugins, backend) if follower is None else follower.run,
        "resource pools": keeper.run,
    }
    if store is not None:
        beside["cleaning the payload store"] = store.keep_clean
    if dialled is not None:
        beside["watching workers"] = dialled.run
    tasks = [asyncio.create_task(supervised(what, work)) for what, work in beside.items()]
    log.info("listening on %s", address_of(listener))
    try:
        await server.serve_on(listener, partial(_start, dispatcher, workers, follower, listener, on_ready))
    finally:
        for task in tasks:
            task.cancel()
        await dispatcher.close()
        if tracer is not None:
            tracer.close()
        log.info("stopped")


def _watch(
    settings: ClusterSettings, plugins: PluginSet, backend: QueueBackend
) -> Callable[[], Coroutine[Any, Any, None]]:
    """Have the backend serve the models of this process's own folders, and return what follows these."""
    folder = open_folder(settings, plugins)
    backend.follow(own_registry(build_catalog(settings, plugins, folder=folder), settings))
    return CatalogWatch(
        folder,
        lambda before: build_catalog(settings, plugins, folder=folder, before=before),
        lambda: backend.catalog,
        lambda catalog: backend.follow(own_registry(catalog, settings)),
        backend.note,
    ).run


async def _start(
    dispatcher: Dispatcher,
    workers: Workers,
    follower: Follower | None,
    listener: socket.socket,
    on_ready: OnReady,
) -> None:
    await dispatcher.open()
    await workers.hear(dispatcher.transport, statuses=True)
    if follower is not None:
        await follower.hear(dispatcher.transport)
    url = url_of(listener)
    on_ready(Announcement(url, docs=f"{url}/docs"))
