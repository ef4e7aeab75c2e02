"""A request goes from the API through queue, sidecar and adapter process, and its answer is the standalone server's."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from sie_cluster.queue.payloads.store import PayloadStore
from sie_cluster.sidecar import held, slices
from sie_cluster.sidecar.slices import MOST_FETCHES
from sie_sdk import wire

from sie_core.contracts import QueueError
from tests.cluster.in_process import Cluster, running

ENCODE = "/v1/encode/sie-fake/embedder"
TIMES = ("timing",)


def without_times(reply: httpx.Response) -> object:
    body = reply.json() if "json" in reply.headers["content-type"] else wire.unpack(reply.content)
    return {name: value for name, value in body.items() if name not in TIMES} if isinstance(body, dict) else body


async def both(cluster: Cluster, path: str, body: object, **headers: str) -> tuple[httpx.Response, httpx.Response]:
    headers["X-SIE-Request-ID"] = "one"
    there = await cluster.alone.post(path, json=body, headers=headers)
    return await cluster.client.post(path, json=body, headers=headers), there


@pytest.mark.parametrize("texts", [1, 3, 33, 1000])
async def test_texts_are_answered_in_their_order_as_the_engine_answers_them(cluster: Cluster, texts: int) -> None:
    body = {"items": [{"id": f"i{place}", "text": f"text number {place}"} for place in range(texts)]}
    wait = {"Prefer": "wait=30"}
    here, there = await both(cluster, ENCODE, body, **wait)
    assert here.status_code == there.status_code == 200
    assert without_times(here) == without_times(there)
    timing = here.json()["timing"]
    assert timing["total_ms"] >= timing["queue_ms"] >= 0


async def test_what_one_item_is_refused_for_names_the_item_of_the_request(cluster: Cluster) -> None:
    body = {"items": [{"text": "fine"}] * 40 + [{"images": [{"data": "AAAA"}]}]}
    here, there = await both(cluster, ENCODE, body, Prefer="wait=30")
    assert here.status_code == there.status_code == 400
    assert here.json() == there.json()
    assert here.json()["error"]["param"].startswith("items[40]")


async def test_an_unknown_model_is_told_by_the_gateway(cluster: Cluster) -> None:
    here, there = await both(cluster, "/v1/encode/sie-fake/embeder", {"items": [{"text": "a"}]})
    assert here.status_code == 404
    assert here.json() == there.json()


async def test_tokens_are_listed_by_the_worker(cluster: Cluster) -> None:
    body = {"inputs": ["one two", "three"]}
    here, there = await both(cluster, "/tei/sie-fake/embedder/tokenize", body)
    assert here.status_code == there.status_code
    assert here.json() == there.json()


TEXT = {"items": [{"text": "word " * 300_000}], "params": {"output_types": ["dense"]}}
TEXTS = [" ".join(["a", "b", str(place)] * 171) for place in range(60)]
MULTIVECTORS = {"items": [{"text": text} for text in TEXTS], "params": {"output_types": ["multivector"]}}


@pytest.mark.parametrize("stored", [False, True], ids=["frames", "store"])
async def test_what_is_larger_than_a_message_travels_in_frames_or_by_the_store(
    tmp_path: Path, stored: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A text beyond the broker's message on the way there, and multi-vectors beyond it on the way back."""
    folder = tmp_path / "store"
    chosen = {"payload_store_url": str(folder)} if stored else {}
    async with running(tmp_path, **chosen) as cluster:
        for body in (TEXT, MULTIVECTORS):
            here, there = await both(cluster, ENCODE, body, Prefer="wait=30")
            assert here.status_code == there.status_code == 200
            assert without_times(here) == without_times(there)
        assert cluster.metric("sie_gateway_bytes_offered_total") > 1 << 20
        assert cluster.metric("sie_gateway_bytes_fetched_total") > 1 << 20
        await cluster.until(lambda: cluster.sidecar.in_flight == 0)
        assert folder.exists() == stored
        assert "goes in frames" not in caplog.text
        await cluster.until(lambda: not list(folder.rglob("payloads/*")))


async def test_a_store_that_fails_at_once_is_tried_again_after_pauses_and_told_as_retryable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker is given the slice at once, and later ones after a pause that doubles; nothing is buried."""
    reads: list[str] = []
    pauses: list[float] = []

    async def fail(self: PayloadStore, key: str, size: int) -> bytes:
        reads.append(key)
        raise QueueError("UNAVAILABLE", "Input/output error")

    def pause_s(attempt: int) -> float:
        pauses.append(held.pause_s(attempt))
        return pauses[-1]

    monkeypatch.setattr(PayloadStore, "read", fail)
    monkeypatch.setattr(held, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(slices, "pause_s", pause_s)
    chosen = {"payload_store_url": str(tmp_path / "store")}
    async with running(tmp_path, **chosen) as cluster:
        reply = await cluster.client.post(ENCODE, json=TEXT, headers={"Prefer": "wait=30"})
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "QUEUE_UNAVAILABLE")
        assert pauses == [0.0, 0.01, 0.02, 0.04, 0.08]
        assert len(reads) == MOST_FETCHES
        assert cluster.metric("sie_gateway_dead_letters_total") == 0
        await cluster.until(lambda: cluster.sidecar.in_flight == 0)
