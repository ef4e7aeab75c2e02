"""Failures on routes of other APIs: the envelope, the status and the pause that their clients read."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
from sie_sdk.errors import ERRORS

from sie_core.api import Gate
from sie_core.api.http.envelopes import OPENAI_CODES
from sie_core.api.routes import BELOW, DOCUMENTED
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


OPENAI_BODIES = {
    "/v1/embeddings": {"input": "x"}, "/embeddings": {"input": "x"}, "/tei/org/model/embeddings": {"input": "x"},
    "/tei/org/model/v1/embeddings": {"input": "x"}, "/v1/rerank": RERANK,
    "/v1/ranking": {"query": "x", "passages": ["y"]},
    "/score": {"text_1": "x", "text_2": "y"}, "/v1/score": {"text_1": "x", "text_2": "y"},
    "/classify": {"input": "x"}, "/v1/classify": {"input": "x"}, "/rerank": RERANK,
}  # fmt: skip
PAGE = (Path(__file__).parents[3] / "docs/use/errors.md").read_text()


@pytest.mark.parametrize("path", OPENAI_BODIES)
async def test_every_route_in_openai_s_shape_gives_the_codes_of_the_page(client: httpx.AsyncClient, backend, path):
    renamed = dict(re.findall(r"^\| `([A-Z_]+)` \| `([a-z_]+)` \|$", PAGE, re.MULTILINE))
    assert renamed == OPENAI_CODES
    for code, row in ERRORS.items():
        backend.act = failing(code)
        reply = await client.post(path, json=OPENAI_BODIES[path])
        assert reply.status_code == row.status
        kind = "invalid_request_error" if row.status < 500 else "server_error"
        fields = {"message": "It is told.", "type": kind, "param": None, "code": renamed.get(code, code)}
        assert reply.json() == {"error": {"attempts": 3, **fields}}


def test_no_route_in_openai_s_shape_is_missing_here():
    shaped = {row.path.replace("{model:path}", "org/model") for row in DOCUMENTED if row.dialect == "openai"}
    assert shaped | {"/rerank"} == OPENAI_BODIES.keys()


KEYS = {
    "native": {"error": {"code", "message", "request_id"}},
    "configs": {"error": {"code", "message", "error", "request_id"}},
    "openai": {"error": {"code", "message", "param", "type"}},
    "cohere": {"code", "message"},
    "tei": {"code", "error", "error_type"},
    "ollama": {"code", "error"},
}
"""The fields of an error in each dialect."""


def keys(body):
    return {"error": set(body["error"])} if isinstance(body.get("error"), dict) else set(body)


@pytest.mark.parametrize("row", DOCUMENTED, ids=lambda row: f"{row.methods[0]} {row.path}")
async def test_a_wrong_method_is_refused_in_the_dialect_of_the_path(client: httpx.AsyncClient, row):
    path = row.path.replace("{model:path}", "org/model").replace("{model:tei_model}", "org/model")
    reply = await client.patch(path)
    assert reply.status_code == 405
    assert set(row.methods) <= set(reply.headers["allow"].split(", "))
    assert keys(reply.json()) == KEYS[row.dialect]


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v1/chat/completions", "openai"), ("/v1/embeddings/x", "openai"), ("/openai/v1/responses", "openai"),
        ("/v2/chat", "cohere"), ("/tei/org/model/nothing/info/x", "tei"), ("/api/generate", "ollama"),
        ("/v1/configs/nothing", "configs"), ("/v1/encode", "native"), ("/v1/models/org/model/x", "native"),
        ("/nothing", "native"), ("/v3/embeddings", "native"),
    ],
)  # fmt: skip
async def test_an_unknown_path_is_refused_in_the_dialect_of_its_prefix(client: httpx.AsyncClient, path, dialect):
    reply = await client.delete(path)
    assert reply.status_code in (404, 405)
    assert keys(reply.json()) == KEYS[dialect]


def test_paths_below_a_native_route_are_native():
    prefixes = {row.path.partition("{")[0] for row in DOCUMENTED if row.dialect == "native" and "/v1/" in row.path}
    assert len(prefixes) > 4
    for path in prefixes:
        assert next(dialect for prefix, dialect in BELOW.items() if path.startswith(prefix)) == "native", path
