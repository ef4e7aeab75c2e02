"""`X-SIE-Priority`: it reaches the backend from every inference route, and a value that is none is refused by name."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from sie_core.api.inference.direct import DirectApp

TEXTS = {"inputs": ["x", "y"]}
RANKED = {"model": "org/model", "query": "q", "documents": ["x"]}
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/encode/org/model": {"items": [{"text": "x"}]},
    "/v1/score/org/model": {"query": {"text": "q"}, "items": [{"text": "x"}]},
    "/v1/extract/org/model": {"items": [{"text": "x"}], "params": {"labels": ["a"]}},
    "/v1/embeddings": {"model": "org/model", "input": "x"},
    "/embeddings": {"input": "x"},
    "/v1/embed": {"model": "org/model", "texts": ["x"], "input_type": "search_query"},
    "/v2/embed": {"model": "org/model", "texts": ["x"], "input_type": "search_query"},
    "/v1/rerank": RANKED,
    "/v2/rerank": RANKED,
    "/embed": TEXTS,
    "/embed_all": TEXTS,
    "/embed_sparse": TEXTS,
    "/similarity": {"inputs": {"source_sentence": "x", "sentences": ["y"]}},
    "/rerank": {"query": "q", "texts": ["x"]},
}


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("priority", ["interactive", "bulk", None])
async def test_every_inference_route_passes_the_priority_on(client: httpx.AsyncClient, backend, path, priority) -> None:
    headers = {} if priority is None else {"X-SIE-Priority": priority}
    await client.post(path, json=ROUTES[path], headers=headers)
    assert [asked.priority for asked in backend.requests] == [priority]


async def test_every_route_with_a_body_refuses_another_priority_by_name(
    client: httpx.AsyncClient, app: DirectApp
) -> None:
    document = app.openapi()
    paths = [path.replace("{model}", "org/model") for path, methods in document["paths"].items() if "post" in methods]
    assert {path for path in ROUTES if "org/model" not in path} <= set(paths)
    for path in paths:
        reply = await client.post(path, json={}, headers={"X-SIE-Priority": "urgent"})
        assert reply.status_code in (400, 422), path
        assert "X-SIE-Priority is 'urgent'; it takes interactive or bulk" in reply.text, path


async def test_a_priority_is_given_once(client: httpx.AsyncClient) -> None:
    headers = [("X-SIE-Priority", "bulk"), ("X-SIE-Priority", "interactive")]
    reply = await client.post("/v1/encode/org/model", json={"items": [{"text": "x"}]}, headers=headers)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"], error["param"]) == (400, "INVALID_INPUT", "X-SIE-Priority")
