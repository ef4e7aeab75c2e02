"""A result larger than a message arrives once, whatever is lost on its way."""

from __future__ import annotations

from pathlib import Path

import pytest
from sie_cluster.messages.frames import decode
from sie_cluster.queue.payloads.fetching import Fetcher
from sie_cluster.queue.payloads.offers import Offer
from sie_cluster.sidecar.queue import results

from sie_core.contracts import QueueError
from tests.cluster.in_process import Cluster, running

PATH = "/v1/encode/sie-fake/embedder"
TEXTS = [" ".join(["a", "b", str(place)] * 171) for place in range(32)]
LARGE = {"items": [{"text": text} for text in TEXTS], "params": {"output_types": ["multivector"]}}


async def answered(cluster: Cluster) -> float:
    """Ask for multi-vectors of one slice; return how many bytes the gateway fetched."""
    reply = await cluster.client.post(PATH, json=LARGE, headers={"Prefer": "wait=30", "X-SIE-Timeout-Ms": "15000"})
    assert reply.status_code == 200, reply.text
    await cluster.until(lambda: cluster.sidecar.in_flight == 0)
    return cluster.metric("sie_gateway_bytes_fetched_total")


async def test_an_offer_that_is_lost_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a gateway that is connecting again just then: the slice is held still, so that nobody sends it again."""
    monkeypatch.setattr(results, "OFFER_AGAIN_S", 0.05)
    async with running(tmp_path) as cluster:
        send, lost = cluster.transport.send, []

        async def lossy(subject: str, payload: bytes, reply: str = "") -> None:
            if not lost and subject in cluster.dispatcher._flights and "offer" in decode(payload)[0]:
                lost.append(payload)
            else:
                await send(subject, payload, reply)

        monkeypatch.setattr(cluster.transport, "send", lossy)
        assert await answered(cluster) > 1 << 20
        assert len(lost) == 1


async def test_a_fetch_that_failed_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "OFFER_AGAIN_S", 0.05)
    fetch, failures = Fetcher.fetch, [QueueError("UNAVAILABLE", "its holder does not answer"), MemoryError()]

    async def failing(fetcher: Fetcher, offer: Offer) -> bytes | memoryview:
        if failures:
            raise failures.pop()
        return await fetch(fetcher, offer)

    monkeypatch.setattr(Fetcher, "fetch", failing)
    async with running(tmp_path) as cluster:
        await answered(cluster)


async def test_a_result_is_fetched_once_however_often_it_is_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as cluster:
        once = await answered(cluster)
        monkeypatch.setattr(results, "OFFER_AGAIN_S", 0.0)
        assert await answered(cluster) == 2 * once
