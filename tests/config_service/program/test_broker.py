"""The service at a real broker, where each program has a user of its own."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from sie_cluster.configs.delta import read_delta
from sie_cluster.queue.access import CONFIG, GATEWAY, accesses
from sie_cluster.queue.broker import ensure_queue, open_transport, transport_maker
from sie_cluster.queue.subjects import ALL_MODELS, EVERY_CONFIG, work_queue
from sie_cluster.settings import ClusterSettings, queue_variables, with_broker

from sie_core.contracts import LocalBroker, Message, QueueTransport
from tests.config_service.api.serving import plugins
from tests.config_service.program.conftest import config_server
from tests.config_service.program.test_http import CONFIG as MODEL
from tests.config_service.program.test_http import MODELS, epoch
from tests.conftest import Server

BOUND_S = 200.0
"""For two starts of a program and three waits for what is away."""
pytestmark = pytest.mark.timeout(300)


@contextmanager
def running(broker: LocalBroker, log: Path) -> Iterator[None]:
    with log.open("ab") as file, subprocess.Popen(broker.commands[0], stdout=file, stderr=file) as process:
        try:
            yield
        finally:
            process.kill()


async def gateway(broker: LocalBroker) -> QueueTransport:
    settings = with_broker(ClusterSettings(), broker.url, broker.logins[GATEWAY])
    return await open_transport(transport_maker(settings, plugins()), lambda _: None)


async def written(server: Server, **fields: object) -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        return await client.post(MODELS, json={**MODEL, **fields})


async def test_followers_hear_of_changes_and_find_the_queues_and_nothing_is_written_while_the_broker_is_away(
    tmp_path: Path,
) -> None:
    local = plugins().queue_transports["nats"].local
    assert local is not None
    broker, log = local(tmp_path, accesses("_default"), 1), tmp_path / "broker.log"
    async with asyncio.timeout(BOUND_S):
        with config_server(
            tmp_path / "config", queue_variables(broker.url, broker.logins[CONFIG]), ready=False
        ) as server:
            refused = await written(server)
            assert (refused.status_code, refused.json()["error"]["error"]) == (503, "nats_unavailable")
            with running(broker, log):
                follower, heard = await gateway(broker), asyncio.Queue[Message]()
                await follower.subscribe(EVERY_CONFIG, heard.put_nowait)
                await asyncio.to_thread(server.wait_for_log, "connection to the broker is connected")
                posted = await written(server)
                assert (posted.status_code, posted.json()["warnings"]) == (201, [])
                message = await heard.get()
                delta = read_delta(message.payload, ["sie-config"])
                assert (message.subject, delta.model_id, delta.epoch) == (ALL_MODELS, "acme/encoder", 1)
                assert await follower.backlog(work_queue("_default").name) == {}
                other = await written(server, sie_id="acme/other", pool="l4")
                assert other.status_code == 201
                await asyncio.to_thread(server.wait_for_log, "queues of pool l4 were not made")
            await asyncio.to_thread(server.wait_for_log, "connection to the broker is reconnecting")
            await follower.close()
            refused = await written(server, sie_id="acme/third")
            assert (refused.status_code, refused.json()["error"]["error"]) == (503, "nats_unavailable")
            assert epoch(server) == 2
            shutil.rmtree(tmp_path / "jetstream")
            with running(broker, log):
                follower = await gateway(broker)
                await ensure_queue(follower, work_queue("_default"))
                assert (await written(server, sie_id="acme/third")).status_code == 201
                await follower.close()
