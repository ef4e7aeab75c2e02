"""What the bodies of all requests in flight take is bounded, and given back with each request."""

import httpx
import pytest

from sie_core.api import Gate, create_app

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
