"""The table of limits says what the server does."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from sie_core.api import create_app
from sie_core.api.body import body
from sie_core.api.body.body import Patience
from sie_core.api.http.limits import LIMITS, MAX_BODY_S, MAX_ITEMS, MIN_BODY_PROGRESS
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


@pytest.mark.parametrize(
    ("headers", "most", "pause"), [({}, 0.05, 60), ({}, 60, 0.05), ({"X-SIE-Timeout-Ms": "50"}, 60, 60)]
)
@pytest.mark.parametrize("path", ["/v1/encode/org/model", "/v1/embeddings"])
async def test_a_body_that_does_not_come_gives_its_place_back(
    client, gate, monkeypatch, headers, most, pause, path
) -> None:
    monkeypatch.setattr(body, "MAX_BODY_S", most)
    monkeypatch.setattr(body, "MAX_BODY_PAUSE_S", pause)

    async def half() -> AsyncIterator[bytes]:
        yield b'{"items":'
        await asyncio.Event().wait()

    reply = await client.post(path, content=half(), headers=headers)
    assert (reply.status_code, gate.in_flight) == (504, 0)
    assert reply.json()["error"]["code"] == "DEADLINE_EXCEEDED"
    assert "body" in reply.json()["error"]["message"]


def test_a_body_is_waited_for_while_it_comes_on_and_no_longer_than_to_the_end() -> None:
    patience = Patience(1000.0, None)
    assert patience.until == 1030
    assert not patience.renewed(MIN_BODY_PROGRESS - 1, 1010.0)
    assert patience.until == 1030
    for step in range(1, 40):
        assert patience.renewed(step * MIN_BODY_PROGRESS, 1000.0 + 20 * step)
        assert patience.until == min(1030 + 20 * step, 1000 + MAX_BODY_S)
    assert Patience(1000.0, 5.0).until == 1005


async def test_what_came_of_a_body_sets_how_long_more_is_waited_for(client, gate, monkeypatch) -> None:
    monkeypatch.setattr(body, "MIN_BODY_PROGRESS", 1)
    monkeypatch.setattr(body, "MAX_BODY_PAUSE_S", 60)

    async def half() -> AsyncIterator[bytes]:
        monkeypatch.setattr(body, "MAX_BODY_PAUSE_S", 0.05)
        yield b'{"items":'
        await asyncio.Event().wait()

    async with asyncio.timeout(30):
        reply = await client.post("/v1/encode/org/model", content=half())
    assert (reply.status_code, gate.in_flight) == (504, 0)
