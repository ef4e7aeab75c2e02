"""What a stream has no room for is `QUEUE_FULL`, is counted as refused, and is taken again once there is room."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr
from sie_cluster.queue import subjects

from tests.cluster.in_process import Cluster, running
from tests.nats.conftest import Broker

MOST = 4
NOBODY = "l4"
"""A machine profile of which a worker is heard, and nobody pulls the work."""


async def asked(cluster: Cluster) -> httpx.Response:
    return await cluster.client.post(
        "/v1/encode/sie-fake/embedder", json={"items": [{"text": "x"}]}, headers={"X-SIE-MACHINE-PROFILE": NOBODY}
    )


@pytest.mark.parametrize("limit", ["MOST_OF_SUBJECT", "MOST_OF_POOL"])
async def test_a_full_stream_refuses_by_type_and_only_while_it_is_full(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(subjects, limit, MOST)
    settings = {"nats_url": SecretStr(broker.url), "pool": limit, "gateway_configured_gpus": (NOBODY,)}
    async with running(tmp_path, **settings) as cluster:
        cluster.hear_of_another(NOBODY, pool=limit)
        for round_ in (1, 2):
            held = [asyncio.create_task(asked(cluster)) for _ in range(MOST)]
            name = subjects.work_queue(limit).name
            async with asyncio.timeout(30):
                while sum((await cluster.transport.backlog(name)).values()) < MOST:  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(0.01)
            refused = await asked(cluster)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "QUEUE_FULL")
            assert int(refused.headers["Retry-After"]) >= 1
            assert cluster.backend.admission.refused == {(NOBODY, "default"): round_}
            for each in held:
                each.cancel()
            await asyncio.wait(held)
            async with asyncio.timeout(30):
                while await cluster.transport.backlog(name):  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(0.01)
