"""What the bodies of all requests in flight take is bounded, and given back with each request."""

import asyncio

import httpx
import pytest

from sie_core.api import Gate, create_app
from sie_core.contracts import InferenceError

URL = "/v1/encode/org/model"


@pytest.mark.parametrize("wrong", [False, True])
async def test_bodies_beyond_what_may_be_held_are_shed_and_nothing_is_kept_of_those_answered(backend, settings, wrong):
    app = create_app(backend, settings, gate=Gate(2, most_bytes=100))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://sie") as client:
        for _ in range(5):
            body = {"items": 7} if wrong else {"items": [{"text": "x" * 40}]}
            assert (await client.post(URL, json=body)).status_code == (400 if wrong else 200)
            reply = await client.post(URL, json={"items": [{"text": "x" * 100}]})
            assert (reply.status_code, reply.json()["error"]["code"]) == (503, "QUEUE_FULL")
            assert "Retry-After" in reply.headers


def test_a_lone_body_of_any_allowed_size_is_never_shed(settings):
    gate = Gate.of(settings)
    gate.enter()
    gate.hold(settings.max_request_body_bytes)
    gate.leave(settings.max_request_body_bytes)


def test_one_client_holds_three_quarters_and_leaves_room_to_the_next():
    gate = Gate(64, 1600)

    def refuses(size, client):
        try:
            gate.hold(size, client)
        except InferenceError:
            return True
        return False

    for _ in range(12):
        gate.enter("greedy")
        gate.hold(100, "greedy")
    assert refuses(1, "greedy")
    assert not refuses(400, "other")
    assert refuses(1, "third")
    gate.leave(100, "greedy")
    assert not refuses(100, "third")


async def test_the_bytes_of_a_body_are_reserved_before_it_comes_and_given_back_with_the_answer(backend, settings):
    gate = Gate(8, most_bytes=4000)
    app = create_app(backend, settings, gate=gate)
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def slow():
        begun.set()
        await goes_on.wait()
        yield b'{"items": [{"text": "x"}]}'.ljust(2500)

    def client():
        return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://sie")

    body = {"items": [{"text": "x" * 1000}]}
    async with client() as one, client() as other, asyncio.timeout(30):
        headers = {"Content-Length": "2500", "Content-Type": "application/json"}
        sending = asyncio.create_task(one.post(URL, content=slow(), headers=headers))
        await begun.wait()
        reply = await other.post(URL, json=body)
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "QUEUE_FULL")
        assert (await other.post(URL, json={"items": [{"text": "x"}]})).status_code == 200
        goes_on.set()
        assert (await sending).status_code == 200
        assert (await other.post(URL, json=body)).status_code == 200
