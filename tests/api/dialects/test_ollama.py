"""Ollama's routes over the real engine and the fakes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio

from sie_core import __version__
from sie_core.settings import Settings
from tests.api.ops.test_openapi import check
from tests.api.serving import OVER, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = "sie-fake/embedder"
TEXTS = ["a house", "a red fox"]
LONG = " ".join(f"w{number}" for number in range(600))


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=OVER)
async def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings(models_dir=tmp_path_factory.mktemp("models"), preload_models=(MODEL,), hf_fallback=False)
    async with serving(settings, request.param) as client:
        yield client


async def native(client: httpx.AsyncClient, texts: list[str], **params: Any) -> list[list[float]]:
    body = {"items": [{"text": text} for text in texts], "params": params}
    reply = await client.post(f"/v1/encode/{MODEL}", json=body)
    return [item["dense"]["values"] for item in reply.json()["items"]]


async def test_a_text_or_several_get_vectors_of_unit_length(client: httpx.AsyncClient) -> None:
    expected = np.array(await native(client, TEXTS))
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    ignored = {"options": {"num_ctx": 2048}, "keep_alive": "5m"}
    several = (await client.post("/api/embed", json={"model": MODEL, "input": TEXTS} | ignored)).json()
    np.testing.assert_allclose(several["embeddings"], expected, atol=1e-6)
    one = (await client.post("/api/embed", json={"model": f"{MODEL}:latest", "input": TEXTS[0]})).json()
    np.testing.assert_allclose(one["embeddings"], expected[:1], atol=1e-6)
    assert (several["model"], several["load_duration"]) == (MODEL, 0)
    assert several["total_duration"] > 0
    assert several["prompt_eval_count"] > one["prompt_eval_count"] > 0


async def test_the_first_route_gives_the_vector_as_the_model_does(client: httpx.AsyncClient) -> None:
    reply = await client.post("/api/embeddings", json={"model": MODEL, "prompt": TEXTS[1]})
    assert reply.json() == {"embedding": pytest.approx((await native(client, TEXTS[1:]))[0], abs=1e-6)}


async def test_what_is_too_long_is_cut_or_refused(client: httpx.AsyncClient) -> None:
    body = {"model": MODEL, "input": LONG}
    plain = (await client.post("/api/embed", json=body)).json()
    assert (await client.post("/api/embed", json=body | {"truncate": True})).json()["embeddings"] == plain["embeddings"]
    reply = await client.post("/api/embed", json=body | {"truncate": False})
    assert (reply.status_code, reply.json()["code"], reply.json()["param"]) == (400, "INPUT_TOO_LONG", "input")


async def test_a_smaller_size_is_given_where_the_model_has_it(client: httpx.AsyncClient) -> None:
    reply = await client.post("/api/embed", json={"model": MODEL, "input": TEXTS, "dimensions": 8})
    assert np.shape(reply.json()["embeddings"]) == (2, 8)
    np.testing.assert_allclose(np.linalg.norm(reply.json()["embeddings"], axis=1), 1, atol=1e-6)


@pytest.mark.parametrize(
    ("path", "changes", "status", "param"),
    [
        ("/api/embed", {"model": "no/such"}, 404, "model"),
        ("/api/embed", {"input": []}, 400, "input"),
        ("/api/embed", {"input": [1, 2]}, 400, "input"),
        ("/api/embed", {"input": ["x", 1]}, 400, "input[1]"),
        ("/api/embed", {"dimensions": 7}, 400, "dimensions"),
        ("/api/embed", {"truncate": "yes"}, 400, "truncate"),
        ("/api/embed", {"model": None}, 400, "model"),
        ("/api/embeddings", {"prompt": None}, 400, "prompt"),
        ("/api/embeddings", {"model": "no/such"}, 404, "model"),
    ],
)
async def test_errors_have_ollama_s_shape(client: httpx.AsyncClient, path, changes, status: int, param: str) -> None:
    body = {"model": MODEL, "input": TEXTS} if path == "/api/embed" else {"model": MODEL, "prompt": "x"}
    reply = await client.post(path, json=body | changes)
    assert (reply.status_code, reply.json()["param"]) == (status, param)
    assert isinstance(reply.json()["error"], str)


async def test_models_and_version_are_listed(client: httpx.AsyncClient) -> None:
    listed = (await client.get("/api/tags")).json()["models"]
    served = (await client.get("/v1/models?available=true")).json()["models"]
    assert [each["name"] for each in listed] == [each["model"] for each in listed] == [each["name"] for each in served]
    assert (await client.get("/api/version")).json() == {"version": __version__}


async def test_replies_are_as_described(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    for body in ({"model": MODEL, "input": TEXTS}, {"model": MODEL, "input": []}):
        check(document, "/api/embed", "post", await client.post("/api/embed", json=body))
    check(
        document, "/api/embeddings", "post", await client.post("/api/embeddings", json={"model": MODEL, "prompt": "x"})
    )
    for path in ("/api/tags", "/api/version"):
        check(document, path, "get", await client.get(path))
