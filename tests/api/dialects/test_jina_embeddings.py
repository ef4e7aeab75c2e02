"""Jina's fields on `/v1/embeddings`, over the fakes and over a backend that tells what it was asked."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio

from sie_core.settings import Settings
from tests.api.ops.test_openapi import check
from tests.api.serving import OVER, serving

URL = "/v1/embeddings"
EMBEDDER = "sie-fake/embedder"
MEDIA = "sie-fake/media"
TEXTS = ["a red fox", "", "ein Haus"]
PICTURE = base64.b64encode(b"pixels").decode()
on_engine = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=OVER)
async def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[httpx.AsyncClient]:
    folder = tmp_path_factory.mktemp("models")
    async with serving(
        Settings(models_dir=folder, preload_models=[EMBEDDER, MEDIA], hf_fallback=False), request.param
    ) as client:
        yield client


async def native(client: httpx.AsyncClient, model: str, items: list[dict[str, Any]], **params: Any) -> np.ndarray:
    body = {"items": items, "params": {"output_types": ["dense"], **params}}
    reply = await client.post(f"/v1/encode/{model}", json=body)
    return np.array([item["dense"]["values"] for item in reply.json()["items"]])


async def embedded(client: httpx.AsyncClient, **body: Any) -> list[Any]:
    reply = await client.post(URL, json={"model": EMBEDDER, "input": TEXTS} | body)
    assert reply.status_code == 200, reply.text
    return [each["embedding"] for each in reply.json()["data"]]


@on_engine
async def test_texts_may_stand_in_maps_and_pictures_beside_them(served: httpx.AsyncClient) -> None:
    items = [{"text": text} for text in TEXTS]
    expected = await native(served, EMBEDDER, items)
    for given in (items, [items[0], *TEXTS[1:]]):
        np.testing.assert_allclose(await embedded(served, input=given), expected, atol=1e-6)
    picture = {"data": PICTURE, "format": "png"}
    expected = await native(served, MEDIA, [{"text": "a fox"}, {"images": [picture]}])
    uri = f"data:image/png;base64,{PICTURE}"
    told = await embedded(served, model=MEDIA, input=[{"text": "a fox"}, {"image": uri}])
    np.testing.assert_allclose(told, expected, atol=1e-6)
    plain = await native(served, MEDIA, [{"images": [{"data": PICTURE}]}])
    np.testing.assert_allclose(await embedded(served, model=MEDIA, input=[{"image": PICTURE}]), plain, atol=1e-6)


@on_engine
async def test_a_task_of_retrieval_is_a_query_or_a_document(served: httpx.AsyncClient) -> None:
    items = [{"text": text} for text in TEXTS]
    for input_type, tasks in (
        ("query", ["retrieval.query", "query"]),
        ("document", ["retrieval.passage", "passage", "document"]),
    ):
        expected = await native(served, EMBEDDER, items, input_type=input_type)
        for task in tasks:
            np.testing.assert_allclose(await embedded(served, task=task), expected, atol=1e-6)
            told = await embedded(served, task=task, input_type=input_type)
            np.testing.assert_allclose(told, expected, atol=1e-6)


@on_engine
async def test_every_embedding_type(served: httpx.AsyncClient) -> None:
    items = [{"text": text} for text in TEXTS]
    exact = await native(served, EMBEDDER, items)
    for more in ({}, {"encoding_format": "base64"}):  # which OpenAI's client sends by itself
        np.testing.assert_allclose(await embedded(served, embedding_type="float", **more), exact, atol=1e-6)
        bits = await native(served, EMBEDDER, items, output_dtype="ubinary")
        np.testing.assert_array_equal(await embedded(served, embedding_type=["ubinary"], **more), bits)
        np.testing.assert_array_equal(np.array(await embedded(served, embedding_type="binary", **more)), bits - 128)
    decoded = [np.frombuffer(base64.b64decode(text), "<f4") for text in await embedded(served, embedding_type="base64")]
    np.testing.assert_allclose(decoded, exact, atol=1e-6)


@on_engine
@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({"task": "clustering"}, "task", "task is no option"),
        ({"task": ""}, "task", "at least 1"),
        ({"task": "retrieval.query", "input_type": "document"}, "task", "give one"),
        ({"embedding_type": "int4"}, "embedding_type", "ubinary"),
        ({"embedding_type": ["float", "binary"]}, "embedding_type", "a request for each"),
        ({"normalized": False}, "normalized", "normalized is no option"),
        ({"late_chunking": True}, "late_chunking", "cannot be done"),
        ({"return_multivector": True}, "return_multivector", "cannot be done"),
        ({"input": ["x", {"image": PICTURE}]}, "input[1]", "takes text, no image"),
        ({"input": [{"image": "https://a.test/b.png"}]}, "input[0].image", "fetches nothing"),
        ({"input": [{"image": "http:"}]}, "input[0].image", "base64"),
        ({"input": [{"image": {"url": PICTURE}}]}, "input[0].image", "base64"),
        ({"input": [{"text": 7}]}, "input[0].text", "text"),
        ({"input": [{"text": "x", "image": PICTURE}]}, "input[0]", "image"),
        ({"input": [{"pdf": "x"}]}, "input[0]", "pdf"),
        ({"input": [{}]}, "input[0]", "nothing"),
        ({"truncate": False, "input": "word " * 600}, "input", "512"),
    ],
)  # fmt: skip
async def test_what_cannot_be_done_is_refused_by_its_field(served: httpx.AsyncClient, body, param, says) -> None:
    reply = await served.post(URL, json={"model": EMBEDDER, "input": "x"} | body)
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, param), error
    assert says in error["message"]


@on_engine
async def test_replies_are_as_described(served: httpx.AsyncClient) -> None:
    document = (await served.get("/openapi.json")).json()
    for more in (
        {},
        {"embedding_type": "binary"},
        {"embedding_type": "base64"},
        {"task": "x"},
        {"input": [{"text": "x"}]},
    ):
        check(document, URL, "post", await served.post(URL, json={"model": EMBEDDER, "input": "x"} | more))


async def test_nulls_and_what_asks_for_nothing_are_as_good_as_absent(client: httpx.AsyncClient, backend) -> None:
    fields = ("task", "embedding_type", "normalized", "late_chunking", "return_multivector", "truncate")
    for more in (dict.fromkeys(fields), {"late_chunking": False, "return_multivector": False, "truncate": True}):
        reply = await client.post(URL, json={"model": "org/model", "input": ["four"]} | more)
        assert reply.json()["data"][0]["embedding"] == [4.0] * 4
    first, second = backend.requests
    assert (first.wishes, first.demands, first.input_type, first.truncate) == ({}, {}, None, None)
    assert second.truncate == "end"


async def test_normalized_vectors_have_unit_length(client: httpx.AsyncClient) -> None:
    reply = await client.post(URL, json={"model": "org/model", "input": ["four", ""], "normalized": True})
    assert [each["embedding"] for each in reply.json()["data"]] == [[0.5] * 4, [0.0] * 4]


async def test_other_tasks_are_the_weights_prompts(client: httpx.AsyncClient, backend) -> None:
    for task in ("text-matching", "retrieval.query", "query"):
        await client.post(URL, json={"model": "org/model", "input": "x", "task": task})
    await client.post(URL, json={"model": "org/model", "input": "x", "normalized": False})
    asked = [(request.wishes, request.demands) for request in backend.requests]
    assert asked == [
        ({}, {"prompt_name": "text-matching"}),
        ({"prompt_name": "retrieval.query"}, {}),
        ({}, {}),
        ({}, {"normalize": False}),
    ]
