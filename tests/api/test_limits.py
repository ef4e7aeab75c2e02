"""The table of limits says what the server does."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from sie_core.api import body, create_app
from sie_core.api.limits import LIMITS, MAX_ITEMS
from sie_core.settings import Settings


def test_every_limit_states_a_value_and_an_answer() -> None:
    for limit in LIMITS:
        assert limit.value
        assert limit.violation.split()[0].isdecimal()
        assert (limit.fixed is None) == (limit.setting is not None)
        if limit.setting is not None:
            assert limit.setting in Settings.model_fields


async def test_one_item_too_many_is_refused(backend) -> None:
    transport = httpx.ASGITransport(create_app(backend, Settings()))
    async with httpx.AsyncClient(transport=transport, base_url="http://sie") as client:
        body = b'{"items":[' + b"{}," * MAX_ITEMS + b"{}]}"
        reply = await client.post("/v1/encode/org/model", content=body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "items")
    assert str(MAX_ITEMS) in reply.json()["error"]["message"]
    assert not backend.requests


@pytest.mark.parametrize(("headers", "seconds"), [({}, 0.05), ({"X-SIE-Timeout-Ms": "50"}, 60)])
@pytest.mark.parametrize("path", ["/v1/encode/org/model", "/v1/embeddings"])
async def test_a_body_that_does_not_come_gives_its_place_back(
    client, gate, monkeypatch, headers, seconds, path
) -> None:
    monkeypatch.setattr(body, "MAX_BODY_S", seconds)

    async def half() -> AsyncIterator[bytes]:
        yield b'{"items":'
        await asyncio.Event().wait()

    reply = await client.post(path, content=half(), headers=headers)
    assert (reply.status_code, gate.in_flight) == (504, 0)
    assert reply.json()["error"]["code"] == "DEADLINE_EXCEEDED"
    assert "body" in reply.json()["error"]["message"]
