"""A whole cluster in this process: a gateway's backend, a sidecar and an engine, over the broker inside the process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr
from sie_bundle.bundles.registry import Registry, make_registry
from sie_cluster.fleet.health.workers import Workers
from sie_cluster.gateway.backend import QueueBackend
from sie_cluster.gateway.capacity.profiles import Profiles
from sie_cluster.gateway.configs import ENDPOINTS
from sie_cluster.gateway.flights.dispatcher import Dispatcher
from sie_cluster.gateway.metrics import GatewayMetrics
from sie_cluster.gateway.pools.keeping import PoolKeeper
from sie_cluster.gateway.pools.leasing import Leasing
from sie_cluster.gateway.routing import Router, own_registry
from sie_cluster.ipc.listening import listen_on
from sie_cluster.messages.export import Export
from sie_cluster.messages.health import WorkerReport, encode_beat, encode_vitals
from sie_cluster.messages.status import WorkerStatus, encode_status
from sie_cluster.messages.work import batch_bytes
from sie_cluster.queue.broker import transport_maker
from sie_cluster.queue.payloads.store import open_payload_store
from sie_cluster.queue.subjects import health_subject
from sie_cluster.settings import ClusterSettings
from sie_cluster.sidecar.metrics import SidecarMetrics
from sie_cluster.sidecar.sidecar import Sidecar
from sie_cluster.worker.configs import Configs
from sie_cluster.worker.intake import Intake
from sie_cluster.worker.vitals import vitals_of
from sie_fake.broker.queue import in_process_transports

from sie_core.api import create_app
from sie_core.auth import TokenSource
from sie_core.catalog import build_catalog
from sie_core.contracts import Message, QueueTransport
from sie_core.defaults import BUILTINS
from sie_core.engine import Engine, build_engine
from sie_core.plugins import PluginSet, discover

BOUND_S = 30.0


@dataclass
class Cluster:
    """Its parts."""

    client: httpx.AsyncClient
    backend: QueueBackend
    dispatcher: Dispatcher
    gateway: GatewayMetrics
    sidecar_metrics: SidecarMetrics
    sidecar: Sidecar
    intake: Intake
    engine: Engine
    transport: QueueTransport
    """The sidecar's."""
    alone: httpx.AsyncClient
    """The routes over the engine itself, as the standalone server has them."""
    plugins: PluginSet
    workers: Workers
    """Those that the gateway hears of."""

    def metric(self, name: str) -> float:
        """One of the gateway's."""
        return self.gateway.registry.get_sample_value(name) or 0.0

    def ended(self, how: str) -> float:
        """How many slices the sidecar held no more, and why."""
        name = "sie_sidecar_slices_ended_total"
        return self.sidecar_metrics.registry.get_sample_value(name, {"how": how}) or 0.0

    def hear_of_another(self, profile: str = "any", *, up: bool = True, pool: str = "_default") -> None:
        """Have the gateway hear of a worker, which is none."""
        report = WorkerReport("another", pool, "default", profile=profile, up=up, beat_s=1000.0)
        self.workers.heard(Message(health_subject("another"), encode_beat(report)))

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(BOUND_S):
            while not holds():  # noqa: ASYNC110 - what is waited for tells nobody
                await asyncio.sleep(0.01)


def registry_of(
    settings: ClusterSettings, plugins: PluginSet, export: Export, before: Registry | None = None
) -> Registry:
    """What a follower makes of an export."""
    catalog = build_catalog(settings, plugins, export=export, before=before and before.catalog)
    old = {} if before is None else before.catalog.configs
    epochs = {
        name: before.epochs[name] if before is not None and old.get(name) is config else export.epoch
        for name, config in catalog.configs.items()
    }
    return make_registry(catalog, export.bundles, export.placement(), epochs)


@asynccontextmanager
async def running(folder: Path, export: Export | None = None, **chosen: Any) -> AsyncIterator[Cluster]:
    """Run a cluster until the end of the block.

    Args:
        folder: Where its socket goes.
        export: What its config service holds at first; None: there is none.
        chosen: Settings.
    """
    own = {"nats_url": SecretStr("memory://tests"), "ipc_socket_path": folder / "ipc", "hf_fallback": False}
    settings = ClusterSettings(**{**own, "health_publish_interval_ms": 1000, **chosen})
    plugins = discover(settings, BUILTINS)
    # The broker is there though a test hides sie-fake, whose it is.
    brokers = {each.scheme: each for each in in_process_transports()}
    plugins = replace(plugins, queue_transports={**brokers, **plugins.queue_transports})
    make = transport_maker(settings, plugins)
    first = None if export is None else build_catalog(settings, plugins, export=Export(0))
    engine = build_engine(settings, plugins, first, gated=True)
    configs = Configs(
        lambda export, before: build_catalog(settings, plugins, export=export, before=before),
        lambda: engine.catalog,
        engine.follow,
        lambda _: intake.tell_configs(),
    )
    intake = Intake(
        engine,
        lambda: encode_status(WorkerStatus(export is None or configs.there.is_set(), None, engine.known_models(500))),
        lambda: (engine.pipeline.queued_cost / settings.max_batch_cost, engine.pipeline.all_prepared),
        batch_bytes=batch_bytes(settings),
        pin=engine.pin,
        configs=None if export is None else configs,
        vitals=lambda: encode_vitals(vitals_of(engine.status())),
    )
    following = asyncio.create_task(configs.run())
    await engine.start()
    server = await asyncio.get_running_loop().create_unix_server(
        intake.stream, sock=listen_on(settings.ipc_socket_path)
    )
    transport = make()
    await transport.open()
    of_sidecar = SidecarMetrics()
    store = open_payload_store(settings, plugins)
    sidecar = Sidecar(transport, settings, "w1", of_sidecar, store)
    metrics = GatewayMetrics()
    dispatcher = Dispatcher(make, settings, metrics, store)
    await dispatcher.open()
    workers = Workers(lambda before, now: backend.heard(before, now))
    await workers.hear(dispatcher.transport, statuses=True)
    registry = own_registry(engine.catalog, settings) if export is None else registry_of(settings, plugins, export)
    profiles = Profiles(settings.gateway_configured_gpus)
    router = Router(settings.pool, registry, profiles)
    if export is not None:
        sidecar.configs.follow(registry)
    keeper = PoolKeeper(
        lambda: dispatcher.transport,
        workers,
        settings.pool_lease_s,
        lambda event, times: metrics.pool_events.labels(event).inc(times),
    )
    pools = Leasing(keeper, router, profiles, settings)
    backend = QueueBackend(dispatcher, workers, plugins, router, settings.gateway_timeout_s, pools=keeper)
    keeping = asyncio.create_task(keeper.run())
    work = asyncio.create_task(sidecar.run())
    async with contextlib.AsyncExitStack() as clients:
        client, alone = [
            await clients.enter_async_context(
                httpx.AsyncClient(
                    transport=httpx.ASGITransport(
                        create_app(
                            each,
                            settings,
                            registry=registry,
                            places_requests=each is backend,
                            pools=pools if each is backend else None,
                            pool_tokens=[TokenSource.of(settings, "pool_token")],
                            routes=ENDPOINTS if each is backend else (),
                        ),
                        raise_app_exceptions=False,
                    ),
                    base_url="http://sie",
                    timeout=BOUND_S,
                )
            )
            for each, registry in ((backend, metrics.registry), (engine, engine.metrics.registry))
        ]
        cluster = Cluster(
            client,
            backend,
            dispatcher,
            metrics,
            of_sidecar,
            sidecar,
            intake,
            engine,
            transport,
            alone,
            plugins,
            workers,
        )
        await cluster.until(lambda: any(worker.healthy for worker in backend.workers()))
        try:
            yield cluster
        finally:
            await dispatcher.close()
            for task in (work, following, keeping):
                task.cancel()
            await asyncio.wait([work, following, keeping])
            await sidecar.end()
            await transport.close()
            server.close()
            await engine.close()
