"""What the results of requests take in a gateway is bounded, whatever each slice of it takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from sie_cluster.gateway.flights import arriving

from tests.cluster.in_process import Cluster, running

ENCODE, NOW = "/v1/encode/sie-fake/embedder", {"Prefer": "wait=30", "Accept": "application/msgpack"}


async def status(cluster: Cluster, items: int) -> tuple[int, str | None]:
    body = {"items": [{"text": str(number)} for number in range(items)]}
    reply = await cluster.client.post(ENCODE, json=body, headers=NOW)
    return reply.status_code, None if reply.status_code == 200 else reply.json()["error"]["code"]


async def test_a_reply_that_is_too_large_in_all_is_refused_although_no_slice_is(tmp_path: Path) -> None:
    async with running(tmp_path, max_reply_bytes=20_000) as cluster:
        assert await status(cluster, 32) == (200, None)
        assert await status(cluster, 320) == (413, "REPLY_TOO_LARGE")
        assert cluster.dispatcher.arriving.bytes == 0


async def test_the_oldest_request_is_answered_beyond_the_bytes_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arriving, "RESULTS_PART", 1e-12)
    async with running(tmp_path) as cluster:
        assert await status(cluster, 320) == (200, None)
