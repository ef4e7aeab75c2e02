"""A gateway in this process that follows a config service, with heartbeats of workers that are none."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from sie_cluster.configs.follower import Follower
from sie_cluster.configs.metrics import FollowerMetrics
from sie_cluster.fleet.health.workers import Workers
from sie_cluster.gateway.backend import QueueBackend
from sie_cluster.gateway.configs import ENDPOINTS
from sie_cluster.gateway.flights.dispatcher import Dispatcher
from sie_cluster.gateway.metrics import GatewayMetrics
from sie_cluster.gateway.routing import Router
from sie_cluster.messages.health import WorkerReport, encode_beat
from sie_cluster.queue.broker import transport_maker
from sie_cluster.queue.subjects import health_subject
from sie_cluster.settings import ClusterSettings

from sie_core.api import create_app
from sie_core.contracts import QueueTransport
from sie_core.defaults import BUILTINS
from sie_core.plugins import discover


@dataclass
class Gateway:
    """Its parts."""

    client: httpx.AsyncClient
    follower: Follower
    transport: QueueTransport
    workers: Workers

    async def get(self, path: str, status: int = 200) -> Any:
        """Get JSON below `/v1/configs`."""
        response = await self.client.get(f"/v1/configs{path}")
        assert response.status_code == status, response.text
        return response.json()

    async def beat(self, worker: str, bundle: str, config_hash: str | None, config_epoch: int | None) -> None:
        """Send the heartbeat of a worker."""
        report = WorkerReport(worker, "_default", bundle, up=True, config_hash=config_hash, config_epoch=config_epoch)
        await self.transport.send(health_subject(worker), encode_beat(report))
        await self.until(lambda: self.workers.reports().get(worker) == report)

    async def until_epoch(self, epoch: int) -> None:
        """Wait until it serves the configs of an epoch."""

        def known() -> bool:
            registry = self.follower.state.registry
            return registry is not None and registry.catalog.config_epoch == epoch

        await self.until(known)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not holds():  # noqa: ASYNC110 - what is waited for tells nobody
                await asyncio.sleep(0.002)


@asynccontextmanager
async def gateway(settings: ClusterSettings) -> AsyncIterator[Gateway]:
    """Run one until the end of the block."""
    plugins = discover(settings, BUILTINS)
    metrics = GatewayMetrics()
    dispatcher = Dispatcher(transport_maker(settings, plugins), settings, metrics)
    workers = Workers(lambda before, now: backend.heard(before, now))
    router = Router(settings.pool)
    follower = Follower(settings, plugins, FollowerMetrics(metrics.registry), lambda registry: backend.follow(registry))
    backend = QueueBackend(dispatcher, workers, plugins, router, 5.0, follower)
    app = create_app(backend, settings, registry=metrics.registry, routes=ENDPOINTS)
    work = asyncio.create_task(follower.run())
    await dispatcher.open()
    await workers.hear(dispatcher.transport, statuses=True)
    await follower.hear(dispatcher.transport)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://sie", timeout=30) as client:
        try:
            yield Gateway(client, follower, dispatcher.transport, workers)
        finally:
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work
            await dispatcher.close()
