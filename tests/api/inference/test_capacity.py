"""Which capacity a client asks for: over workers of several machine profiles it reaches the backend."""

from __future__ import annotations

import httpx
import pytest

from sie_core.api import create_app
from sie_core.settings import Settings
from tests.api.conftest import TellTaleBackend

ENCODE, BODY = "/v1/encode/org/model", {"items": [{"text": "x"}]}


async def asked(backend: TellTaleBackend, headers: dict[str, str]) -> httpx.Response:
    transport = httpx.ASGITransport(create_app(backend, Settings(), places_requests=True))
    async with httpx.AsyncClient(transport=transport, base_url="http://sie") as client:
        return await client.post(ENCODE, json=BODY, headers=headers)


@pytest.mark.parametrize(
    ("headers", "profile", "pool"),
    [
        ({}, None, None),
        ({"X-SIE-MACHINE-PROFILE": "L4"}, "l4", None),
        ({"X-SIE-MACHINE-PROFILE": "Mine/L4"}, "l4", "mine"),
        ({"X-SIE-MACHINE-PROFILE": "mine/l4", "X-SIE-Pool": "Mine"}, "l4", "mine"),
        ({"X-SIE-Pool": "mine"}, None, "mine"),
        ({"X-SIE-MACHINE-PROFILE": "", "X-SIE-Pool": " "}, None, None),
    ],
)
async def test_profile_and_pool_reach_the_backend_in_lower_case(
    backend: TellTaleBackend, headers: dict[str, str], profile: str | None, pool: str | None
) -> None:
    assert (await asked(backend, headers)).status_code == 200
    assert (backend.requests[0].machine_profile, backend.requests[0].resource_pool) == (profile, pool)


async def test_two_pools_are_refused(backend: TellTaleBackend) -> None:
    reply = await asked(backend, {"X-SIE-MACHINE-PROFILE": "a/l4", "X-SIE-Pool": "b"})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "X-SIE-Pool")
    assert not backend.requests


async def test_the_profile_that_a_server_shows_may_be_asked_for(backend: TellTaleBackend) -> None:
    app = create_app(backend, Settings(gpu_type="l4"), machine_profile="l4-spot")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://sie") as client:
        health = (await client.get("/health")).json()
        assert (health["live_gpu_types"], health["cluster"]["gpu_count"]) == (["l4-spot"], 1)
        (shown,) = {*health["live_gpu_types"], *health["models"][0]["gpu_types"]}
        reply = await client.post(ENCODE, json=BODY, headers={"X-SIE-MACHINE-PROFILE": shown})
        assert reply.status_code == 200
