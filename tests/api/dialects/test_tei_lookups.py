"""What TEI's clients ask with GET, and what is refused beside it: wrong methods, ids that cannot be any model's."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest

from sie_core.api import Gate
from sie_core.contracts import Health, InferenceError

MODEL = "/tei/org/model"


@pytest.mark.parametrize("path", ["/ping", f"{MODEL}/health"])
async def test_a_ready_server_is_well_and_one_that_is_not_says_why(client, backend, gate: Gate, path: str) -> None:
    reply = await client.get(path)
    assert (reply.status_code, reply.text) == (200, "ok")
    backend.state = Health(None, "models are preloaded")
    reply = await client.get(path)
    assert (reply.status_code, reply.json()["error_type"]) == (503, "Unhealthy")
    assert "models are preloaded" in reply.json()["error"]
    backend.state = Health(None, None)
    gate.close()
    assert (await client.get(path)).status_code == 503


async def test_a_model_is_well_before_it_is_loaded(client: httpx.AsyncClient, backend, monkeypatch) -> None:
    available = replace(backend.model("org/model"), state="available")
    monkeypatch.setattr(backend, "model", lambda model: available)
    assert (await client.get(f"{MODEL}/health")).status_code == 200


async def test_a_model_that_could_not_be_loaded_is_unwell(client: httpx.AsyncClient, backend, monkeypatch) -> None:
    error = {"code": "CONFIG", "message": "config.json is missing.", "attempts": 1, "permanent": True}
    failed = replace(backend.model("org/model"), state="failed", last_error=error)
    monkeypatch.setattr(backend, "model", lambda model: failed)
    reply = await client.get(f"{MODEL}/health")
    assert (reply.status_code, reply.json()["error_type"]) == (424, "Backend")
    assert "config.json is missing" in reply.json()["error"]


async def test_an_unknown_model_is_not_found(client: httpx.AsyncClient) -> None:
    for name in ("health", "info"):
        reply = await client.get(f"/tei/no/such/{name}")
        assert (reply.status_code, reply.json()["code"]) == (404, "MODEL_NOT_FOUND")


@pytest.mark.parametrize("name", ["info", "info/", "health"])
@pytest.mark.parametrize("method", ["POST", "PUT", "OPTIONS"])
async def test_what_is_asked_with_get_takes_no_other_method(client: httpx.AsyncClient, backend, name, method) -> None:
    reply = await client.request(method, f"{MODEL}/{name}", json={"inputs": "x"})
    allowed = "GET, HEAD" if name == "health" else "GET"
    assert (reply.status_code, reply.headers["allow"], reply.json()["code"]) == (405, allowed, "METHOD_NOT_ALLOWED")
    assert backend.requests == []


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        (MODEL, "POST"),
        (f"{MODEL}/embed", "POST"),
        (f"{MODEL}/v1/embeddings", "POST"),
        ("/", "GET, HEAD, POST"),
        ("/info", "GET"),
        ("/ping", "GET, HEAD"),
        ("/embeddings", "POST"),
        ("/v1/models/org/model", "GET"),
        ("/v1/encode/org/model", "POST"),
    ],
)
async def test_every_method_of_a_path_is_told(client: httpx.AsyncClient, path: str, allowed: str) -> None:
    for method in ("OPTIONS", "DELETE"):
        reply = await client.request(method, path)
        assert (reply.status_code, reply.headers["allow"]) == (405, allowed)
        assert allowed in reply.text


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("POST", f"/tei/a..b/{name}") for name in ("embed", "tokenize", "decode", "predict", "similarity", "rerank")),
        ("POST", "/tei//x/embed"),
        ("POST", "/tei//embed"),
        ("POST", "/tei/a..b"),
        ("POST", f"/tei/{'a' * 257}/embed"),
        ("GET", "/tei/a..b/info"),
        ("GET", "/tei/a..b/health"),
    ],
)
async def test_a_text_that_is_no_model_s_id_is_the_client_s_mistake(client, backend, method: str, path: str) -> None:
    body = {
        "inputs": {"source_sentence": "x", "sentences": ["x"]} if "similarity" in path else "x",
        **({"query": "x", "texts": ["x"]} if "rerank" in path else {}),
        "ids": [1],
    }
    reply = await client.request(method, path, json=body if method == "POST" else None)
    assert (reply.status_code, reply.json()["error_type"], reply.json()["param"]) == (400, "Validation", "model")
    assert backend.requests == []


async def test_documents_below_a_model_are_asked_of_that_very_model(client: httpx.AsyncClient, backend) -> None:
    async def refuse(request) -> None:
        raise InferenceError("MODEL_NOT_FOUND", "No such model.", param="model")

    backend.act = refuse
    body = {"query": "x", "documents": ["y"]}
    assert (await client.post("/tei/my__model/rerank", json=body)).status_code == 404
    assert [request.model for request in backend.requests] == ["my__model"]
