"""The routes of pools, and requests that name one, over a whole cluster in this process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr
from sie_cluster.fleet.pools.asking import read_listing

from tests.cluster.in_process import BOUND_S, Cluster, running

ENCODE = "/v1/encode/sie-fake/embedder"
ITEMS = {"items": [{"text": "a"}]}
WAIT = {"Prefer": "wait=30", "X-SIE-Timeout-Ms": "30000"}
L4 = {"machine_profile": "l4", "gateway_configured_gpus": ("l4", "a100-spot")}


async def state_of(cluster: Cluster, pool: str) -> str:
    answer = await cluster.client.get(f"/v1/pools/{pool}")
    return str(answer.json()["status"]["state"])


async def until_state(cluster: Cluster, pool: str, state: str) -> dict[str, Any]:
    async with asyncio.timeout(BOUND_S):
        while await state_of(cluster, pool) != state:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.05)
    return dict((await cluster.client.get(f"/v1/pools/{pool}")).json())


def refused(answer: httpx.Response, status: int, code: str, param: str | None = None) -> str:
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error.get("param")) == (status, code, param), answer.text
    assert not isinstance(answer.json().get("detail"), str)
    return str(error["message"])


async def test_a_pool_is_made_serves_its_requests_alone_and_ends(tmp_path: Path) -> None:
    async with running(tmp_path, **L4) as cluster:
        client = cluster.client
        nobody = await client.post(ENCODE, json=ITEMS, headers={"X-SIE-Pool": "mine"})
        assert "mine" in refused(nobody, 404, "POOL_NOT_FOUND", "X-SIE-Pool")
        made = await client.post("/v1/pools", json={"name": "Mine", "gpus": {"L4": 1}})
        assert (made.status_code, made.json()["name"]) == (201, "mine")
        told = await until_state(cluster, "mine", "active")
        assert told["spec"]["gpus"] == {"l4": 1}
        (worker,) = told["status"]["assigned_workers"]
        assert (worker["name"], worker["gpu"], worker["bundle"]) == ("w1", "l4", "default")
        assert cluster.sidecar.report().resource_pool == "mine"
        for headers in ({"X-SIE-Pool": "MINE"}, {"X-SIE-MACHINE-PROFILE": "mine/l4"}):
            assert (await client.post(ENCODE, json=ITEMS, headers={**headers, **WAIT})).status_code == 200, headers
        alone = await client.post(ENCODE, json=ITEMS, headers={"X-SIE-Timeout-Ms": "1500"})
        assert alone.status_code in (202, 503, 504), "nobody is left for what names no pool"
        renewed = await client.post(
            "/v1/pools/mine/renew", content=b"", headers={"Content-Type": "application/msgpack"}
        )
        assert renewed.status_code == 200
        assert renewed.json()["status"]["last_renewed"] > told["status"]["last_renewed"]
        assert renewed.json()["status"]["created_at"] == told["status"]["created_at"]
        listed = (await client.get("/v1/pools")).json()["pools"]
        assert [(each["name"], len(each["status"]["assigned_workers"])) for each in listed] == [
            ("default", 0),
            ("mine", 1),
        ]
        assert (await client.delete("/v1/pools/mine")).status_code == 200
        assert (await client.post(ENCODE, json=ITEMS, headers=WAIT)).status_code == 200
        assert cluster.sidecar.report().resource_pool == "default"
        await routes_refuse(cluster)


async def routes_refuse(cluster: Cluster) -> None:
    """Refuse what the routes refuse, with bodies that the published client survives."""
    client = cluster.client
    for call in (client.get("/v1/pools/no"), client.delete("/v1/pools/no"), client.post("/v1/pools/no/renew")):
        refused(await call, 404, "POOL_NOT_FOUND", "X-SIE-Pool")
    refused(await client.delete("/v1/pools/default"), 403, "FORBIDDEN", "name")
    refused(await client.post("/v1/pools", json={"name": "default"}), 403, "FORBIDDEN", "name")
    assert (await client.post("/v1/pools/default/renew")).status_code == 200
    for body, param in (
        ({"name": ""}, "name"),
        ({"name": "a b"}, "name"),
        ({}, "name"),
        ({"name": "p", "gpus": {"h100": 1}}, "gpus.h100"),
        ({"name": "p", "gpu_caps": {"h100": 1}}, "gpu_caps.h100"),
        ({"name": "p", "gpus": {"l4": -1}}, "gpus.l4"),
        ({"name": "p", "gpus": {"l4": 2}, "gpu_caps": {"l4": 1}}, "gpu_caps.l4"),
        ({"name": "p", "bundle": "none"}, "bundle"),
        ({"name": "p", "minimum_worker_count": -1}, "minimum_worker_count"),
        ({"name": "p", "pinned_models": ["sie-fake/embedder", "no/such"]}, "pinned_models[1]"),
        ({"name": "p", "ttl": 5}, "ttl"),
    ):
        refused(await client.post("/v1/pools", json=body), 400, "INVALID_INPUT", param)
    refused(await client.put("/v1/pools/no"), 405, "METHOD_NOT_ALLOWED")
    spot = (await client.post("/v1/pools", json={"name": "spot", "gpus": {"a100": 1}})).json()
    assert (spot["spec"]["gpus"], spot["status"]["state"]) == ({"a100-spot": 1}, "pending")
    (own,) = (await client.get("/v1/pools")).json()["pools"][:1]
    assert (own["spec"]["gpus"], own["status"]["state"]) == ({"l4": 999, "a100-spot": 999}, "active")
    for call in (cluster.alone.post("/v1/pools", json={"name": "p"}), cluster.alone.delete("/v1/pools/p")):
        assert "sie gateway" in refused(await call, 404, "NOT_FOUND")
    events = {each.labels["event"] for each in cluster.gateway.pool_events.collect()[0].samples}
    assert events >= {"created", "deleted", "renewed", "assigned", "released"}


async def test_models_that_a_pool_pins_are_loaded_on_its_workers_until_it_ends(tmp_path: Path) -> None:
    async with running(tmp_path, **L4) as cluster:
        body = {"name": "mine", "gpus": {"l4": 1}, "pinned_models": ["sie-fake/dense"]}
        await cluster.client.post("/v1/pools", json=body)
        await cluster.until(lambda: cluster.engine.model("sie-fake/dense").state == "loaded")
        assert cluster.engine.model("sie-fake/dense").pinned
        told = read_listing((await cluster.client.get("/v1/pools")).json())
        assert (told.pool_of("w1"), told.pool_of("w2")) == ("mine", "default"), "what a gateway tells a sidecar"
        assert told.pins_of("w1") == ("sie-fake/dense",)
        await cluster.client.delete("/v1/pools/mine")
        await cluster.until(lambda: not cluster.engine.model("sie-fake/dense").pinned)


async def test_pools_are_changed_with_the_admin_token_alone(tmp_path: Path) -> None:
    tokens = {"auth_mode": "token", "auth_token": SecretStr("client"), "pool_token": SecretStr("admin")}
    async with running(tmp_path, **L4, **tokens) as cluster:
        client, admin = ({"Authorization": f"Bearer {token}"} for token in ("client", "admin"))
        for headers, status in (({}, 401), (client, 403), (admin, 201)):
            made = await cluster.client.post("/v1/pools", json={"name": "mine"}, headers=headers)
            assert made.status_code == status, made.text
        assert (await cluster.client.get("/v1/pools/mine", headers=client)).status_code == 200
        for headers, status in ((client, 403), (admin, 200)):
            renewed = await cluster.client.post("/v1/pools/mine/renew", headers=headers)
            assert renewed.status_code == status
            assert (await cluster.client.delete("/v1/pools/mine", headers=headers)).status_code == status
