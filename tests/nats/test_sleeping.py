"""A cluster that has nothing to do asks its broker next to nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import nats
import pytest
from pydantic import SecretStr
from sie_cluster.queue.broker import transport_maker
from sie_cluster.settings import ClusterSettings
from sie_cluster.sidecar.metrics import SidecarMetrics
from sie_cluster.sidecar.sidecar import Sidecar

from tests.cluster.in_process import Cluster, running
from tests.nats.conftest import Broker

SIDECARS, SECONDS, A_SECOND = 50, 10, 20
BEAT_MS = 5000
pytestmark = pytest.mark.timeout(300)


async def sleep_beside(cluster: Cluster, chosen: dict[str, Any], names: list[str], until_end: AsyncExitStack) -> None:
    """Run more sidecars of the one adapter process."""
    settings = ClusterSettings(ipc_socket_path=cluster.sidecar.link._path, **chosen)
    for name in names:
        transport = transport_maker(settings, cluster.plugins)()
        await transport.open()
        until_end.push_async_callback(transport.close)
        sidecar = Sidecar(transport, settings, name, SidecarMetrics())
        working = asyncio.create_task(sidecar.run())
        until_end.callback(working.cancel)


async def test_fifty_workers_without_work_ask_the_broker_less_than_twenty_times_a_second(
    own_broker: Broker, tmp_path: Path
) -> None:
    chosen = {
        "nats_url": SecretStr(own_broker.url),
        "plugins": ("fake", "nats"),
        "health_publish_interval_ms": BEAT_MS,
    }
    names = [f"sleeper{number}" for number in range(SIDECARS - 1)]
    async with running(tmp_path, **chosen) as cluster, AsyncExitStack() as until_end:
        await sleep_beside(cluster, chosen, names, until_end)
        await cluster.until(lambda: sum(each.healthy for each in cluster.backend.workers()) == SIDECARS)
        body = {"items": [{"text": "a text"}]}
        asked = await cluster.client.post("/v1/encode/sie-fake/embedder", json=body, headers={"Prefer": "wait=60"})
        assert asked.status_code == 200, asked.text
        client = await nats.connect(own_broker.url)
        until_end.push_async_callback(client.close)
        counted: Counter[str] = Counter()

        async def count(message: Any) -> None:
            counted[".".join(message.subject.split(".")[2:4])] += 1

        await client.subscribe("$JS.API.>", cb=count)
        await asyncio.sleep(SECONDS)
        print(counted)
        assert counted.total() <= SECONDS * A_SECOND, counted
        assert any(each.loaded_models for each in cluster.backend.workers()), "the key that was asked for is pulled"
