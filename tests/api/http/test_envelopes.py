"""Failures on routes of other APIs: the envelope, the status and the pause that their clients read."""

from __future__ import annotations

import httpx
import pytest
from sie_sdk.errors import ERRORS

from sie_core.api import Gate
from sie_core.contracts import InferenceError

RERANK = {"model": "org/model", "query": "x", "documents": ["y"]}
EMBED = {"inputs": ["x"]}


def failing(code: str):
    async def fail(request):
        raise InferenceError(code, "It is told.", details={"attempts": 3})

    return fail


@pytest.mark.parametrize(
    ("code", "status", "error_type"),
    [
        ("INPUT_TOO_LONG", 413, "Validation"),
        ("INVALID_INPUT", 422, "Validation"),
        ("MODEL_NOT_FOUND", 404, "Validation"),
        ("INFERENCE_ERROR", 424, "Backend"),
        ("MODEL_LOAD_FAILED", 424, "Backend"),
        ("QUEUE_FULL", 429, "Overloaded"),
        ("RESOURCE_EXHAUSTED", 429, "Overloaded"),
        ("PROVISIONING", 503, "Unhealthy"),
        ("MODEL_LOADING", 503, "Unhealthy"),
        ("INTERNAL_ERROR", 500, "Backend"),
    ],
)
async def test_tei_s_clients_read_its_own_statuses_and_types(
    client: httpx.AsyncClient, backend, code, status, error_type
):
    backend.act = failing(code)
    reply = await client.post("/tei/org/model/embed", json=EMBED)
    assert reply.status_code == status
    assert reply.json() == {"error": "It is told.", "error_type": error_type, "code": code, "attempts": 3}
    assert ("retry-after" in reply.headers) == (ERRORS[code].retry_after_s is not None)


@pytest.mark.parametrize("code", ["INVALID_INPUT", "QUEUE_FULL", "PROVISIONING", "MODEL_LOAD_FAILED"])
async def test_cohere_s_and_jina_s_clients_read_the_table_s(client: httpx.AsyncClient, backend, code):
    backend.act = failing(code)
    cohere, jina = [await client.post(path, json=RERANK) for path in ("/v2/rerank", "/v1/rerank")]
    assert cohere.status_code == jina.status_code == ERRORS[code].status
    assert cohere.json() == {"message": "It is told.", "code": code, "attempts": 3}
    assert jina.json()["error"]["message"] == "It is told."


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/rerank", RERANK),
        ("/v2/rerank", RERANK),
        ("/embed", EMBED),
        ("/", EMBED),
        ("/tei/org/model/tokenize", EMBED),
    ],
)
async def test_they_pass_the_gate(client: httpx.AsyncClient, gate: Gate, backend, path, body):
    gate.close()
    reply = await client.post(path, json=body)
    assert (reply.status_code, reply.headers["connection"]) == (503, "close")
    assert reply.headers["x-sie-served-by"] == "local"
    assert backend.requests == []


async def test_loads_are_waited_for_as_long_as_the_settings_or_the_client_say(client, backend, settings):
    for path, body in (("/tei/org/model/embed", EMBED), ("/v2/rerank", RERANK)):
        await client.post(path, json=body)
        await client.post(path, json=body, headers={"Prefer": "wait=3"})
    assert [request.load_wait.seconds for request in backend.requests] == [settings.model_wait_s, 3] * 2
