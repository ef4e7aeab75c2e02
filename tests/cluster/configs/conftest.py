"""A config service and followers of it, over the broker inside the process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pydantic import SecretStr
from sie_bundle.bundles.registry import Registry
from sie_cluster.configs.follower import Follower
from sie_cluster.configs.metrics import FollowerMetrics
from sie_cluster.queue.broker import transport_maker
from sie_cluster.settings import ClusterSettings

from sie_core.contracts import QueueTransport
from sie_core.defaults import BUILTINS
from sie_core.plugins import discover
from tests.cluster.configs.service import TOKEN, SmallService, some_models

BOUND_S = 30.0


@dataclass
class Following:
    """A follower, with what it told and counted."""

    follower: Follower
    counts: CollectorRegistry
    told: list[Registry] = field(default_factory=list)

    @property
    def epoch(self) -> int | None:
        registry = self.follower.state.registry
        return None if registry is None else registry.catalog.config_epoch

    def count(self, what: str, outcome: str) -> int:
        return int(self.counts.get_sample_value(f"sie_config_{what}_total", {"outcome": outcome}) or 0)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(BOUND_S):
            while not holds():  # noqa: ASYNC110 - what is waited for tells nobody
                await asyncio.sleep(0.005)


def settings_of(url: str, **chosen: Any) -> ClusterSettings:
    own: dict[str, Any] = {
        "nats_url": SecretStr("memory://configs"),
        "config_service_url": url,
        "config_read_token": SecretStr(TOKEN),
        "worker_config_full_export_interval_ms": 0,
        "plugins": ("fake", "cluster"),
    }
    return ClusterSettings(**{**own, **chosen})


@asynccontextmanager
async def connected(settings: ClusterSettings) -> AsyncIterator[QueueTransport]:
    """A connection to the broker."""
    transport = transport_maker(settings, discover(settings, BUILTINS))()
    await transport.open()
    try:
        yield transport
    finally:
        await transport.close()


@asynccontextmanager
async def following(
    settings: ClusterSettings,
    transport: QueueTransport | None = None,
    on_registry: Callable[[Registry], None] | None = None,
) -> AsyncIterator[Following]:
    """Run a follower until the end of the block; without a transport the broker is away."""
    counts, told = CollectorRegistry(), []
    follower = Follower(settings, discover(settings, BUILTINS), FollowerMetrics(counts), on_registry or told.append)
    if transport is not None:
        await follower.hear(transport)
    work = asyncio.create_task(follower.run())
    try:
        yield Following(follower, counts, told)
    finally:
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work


@pytest.fixture
def service() -> SmallService:
    return SmallService(some_models())


@pytest.fixture
def url(service: SmallService) -> Iterator[str]:
    with service.serving() as url:
        yield url


@pytest.fixture
async def transport() -> AsyncIterator[QueueTransport]:
    async with connected(settings_of("http://127.0.0.1:9")) as transport:
        yield transport
