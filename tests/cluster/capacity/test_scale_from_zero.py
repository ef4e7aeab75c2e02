"""Requests that no worker takes: told to come back by 202 or 503, or held until one comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry
from sie_cluster.gateway.capacity.numbers import CapacityNumbers

from tests.cluster.in_process import Cluster, running

ENCODE, BODY = "/v1/encode/sie-fake/embedder", {"items": [{"text": "x"}]}
OURS, PUBLISHED = {"X-SIE-SDK-Version": "1.2.0"}, {"X-SIE-SDK-Version": "0.10.1"}
EMBEDDINGS = ("/v1/embeddings", {"model": "sie-fake/embedder", "input": "x"})


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """A cluster whose only worker is of no profile, and where nobody waits for long."""
    async with running(tmp_path, gateway_configured_gpus=("l4-spot", "h100"), model_wait_s=0.05) as cluster:
        yield cluster


async def asked(
    cluster: Cluster, headers: dict[str, str], route: tuple[str, object] = (ENCODE, BODY)
) -> httpx.Response:
    return await cluster.client.post(route[0], json=route[1], headers={"X-SIE-MACHINE-PROFILE": "h100"} | headers)


@pytest.mark.parametrize(
    ("headers", "route", "status"),
    [
        ({}, (ENCODE, BODY), 202),
        (OURS, (ENCODE, BODY), 202),
        (PUBLISHED, (ENCODE, BODY), 503),
        (OURS | {"Prefer": "wait=0"}, (ENCODE, BODY), 503),
        (OURS, EMBEDDINGS, 503),
        ({}, ("/v2/embed", {"model": "sie-fake/embedder", "texts": ["x"], "input_type": "search_query"}), 503),
        ({}, ("/tei/sie-fake/embedder/embed", {"inputs": "x"}), 503),
    ],
)
async def test_the_status_is_that_of_the_path_and_the_client(
    cluster: Cluster, headers: dict[str, str], route: tuple[str, object], status: int
) -> None:
    reply = await asked(cluster, headers, route)
    assert reply.status_code == status, reply.text
    assert float(reply.headers["retry-after"]) == 5
    assert "PROVISIONING" in reply.text
    assert "h100" in reply.text


async def test_without_a_profile_the_worker_that_there_is_answers(cluster: Cluster) -> None:
    reply = await cluster.client.post(ENCODE, json=BODY, headers={"Prefer": "wait=30"})
    assert reply.status_code == 200


async def test_a_profile_nobody_has_is_a_refusal_that_names_those_there_are(cluster: Cluster) -> None:
    reply = await asked(cluster, {"X-SIE-MACHINE-PROFILE": "b200"})
    assert (reply.status_code, reply.json()["error"]["known_profiles"]) == (400, ["h100", "l4-spot"])


async def test_a_held_request_goes_on_when_a_worker_comes(cluster: Cluster) -> None:
    held = asyncio.create_task(asked(cluster, {"Prefer": "wait=30", "X-SIE-Timeout-Ms": "60000"}))
    await cluster.until(lambda: bool(dict(cluster.backend.provisioning.demand.pending())))
    cluster.hear_of_another("h100")
    await cluster.until(lambda: any(key.lane.profile == "h100" for key in cluster.backend.admission.busy()))
    held.cancel()


async def test_demand_is_told_until_a_worker_comes_and_series_are_there_before_and_after(cluster: Cluster) -> None:
    registry, backend = CollectorRegistry(), cluster.backend
    known = lambda: (("h100", "l4-spot"), ("default",))  # noqa: E731
    registry.register(
        CapacityNumbers(backend.provisioning, backend.admission, lambda: cluster.workers.reports().values(), known)
    )
    labels = {"machine_profile": "h100", "bundle": "default"}

    def read(name: str, **further: str) -> float | None:
        return registry.get_sample_value(f"sie_gateway_{name}", labels | further)

    assert (read("pending_demand"), read("provisioning_responses_total")) == (0, 0)
    assert [read("rejected_requests_total", reason=why) for why in ("provisioning", "queue_full")] == [0, 0]
    for _ in range(3):
        await asked(cluster, OURS)
    assert (read("pending_demand"), read("provisioning_responses_total")) == (3, 3)
    assert read("rejected_requests_total", reason="provisioning") == 3
    cluster.hear_of_another("h100")
    assert (read("pending_demand"), read("queue_age_seconds"), read("queued_cost")) == (0, 0, 0)
    cluster.hear_of_another("h100", up=False)
    series = {tuple(sample.labels.values()) for family in registry.collect() for sample in family.samples}
    assert {("any", "default"), ("h100", "default"), ("l4-spot", "default")} <= series


async def test_a_request_without_a_profile_counts_to_the_default_one(cluster: Cluster) -> None:
    registry, backend = CollectorRegistry(), cluster.backend
    known = lambda: (("h100", "l4-spot"), ("default",))  # noqa: E731
    registry.register(CapacityNumbers(backend.provisioning, backend.admission, list, known, default_profile="h100"))
    backend.provisioning.demand.add(backend._router.route("sie-fake/embedder").lane)
    backend.provisioning.demand.add(backend._router.route("sie-fake/embedder", profile="h100").lane)

    def demand(profile: str) -> float | None:
        labels = {"machine_profile": profile, "bundle": "default"}
        return registry.get_sample_value("sie_gateway_pending_demand", labels)

    assert [demand(profile) for profile in ("h100", "l4-spot", "any")] == [2, 0, None]
