"""`/v1/embed` and `/v2/embed` over the real engine and the fakes, and over a backend that tells what it was asked."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio

from sie_core.api.http.limits import MAX_EMBEDDING_INPUTS
from sie_core.settings import Settings
from tests.api.ops.test_openapi import check
from tests.api.serving import OVER, serving

MODELS = ("sie-fake/embedder", "sie-fake/media", "sie-fake/dense", "sie-fake/reranker")
EMBEDDER = "sie-fake/embedder"
MEDIA = "sie-fake/media"
TEXTS = ["a red fox", "", "ein Haus"]
PATHS = ("/v1/embed", "/v2/embed")
PICTURE = base64.b64encode(b"pixels").decode()
DATA_URI = f"data:image/png;base64,{PICTURE}"
on_engine = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=OVER)
async def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[httpx.AsyncClient]:
    folder = tmp_path_factory.mktemp("models")
    settings = Settings(models_dir=folder, preload_models=MODELS, hf_fallback=False, default_model=EMBEDDER)
    async with serving(settings, request.param) as client:
        yield client


async def native(client: httpx.AsyncClient, model: str, items: list[dict[str, Any]], **params: Any) -> np.ndarray:
    reply = await client.post(
        f"/v1/encode/{model}", json={"items": items, "params": {"output_types": ["dense"], **params}}
    )
    return np.array([item["dense"]["values"] for item in reply.json()["items"]])


async def embedded(client: httpx.AsyncClient, path: str, **body: Any) -> Any:
    reply = await client.post(path, json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()["embeddings"]


@on_engine
async def test_the_first_version_gives_plain_lists_and_the_second_lists_by_type(served: httpx.AsyncClient) -> None:
    expected = await native(served, EMBEDDER, [{"text": text} for text in TEXTS])
    for path, version, kind in (("/v1/embed", "1", "embeddings_floats"), ("/v2/embed", "2", "embeddings_by_type")):
        reply = await served.post(path, json={"model": EMBEDDER, "texts": TEXTS})
        told = reply.json()
        vectors = told.pop("embeddings")
        np.testing.assert_allclose(vectors if version == "1" else vectors.pop("float"), expected, atol=1e-6)
        assert told == {
            "id": reply.headers["X-SIE-Request-ID"],
            "response_type": kind,
            "texts": TEXTS,
            "meta": {
                "api_version": {"version": version},
                "billed_units": {"input_tokens": 5},
                "tokens": {"input_tokens": 5},
            },
        }


@on_engine
@pytest.mark.parametrize("path", PATHS)
async def test_every_type_is_made_of_the_same_vectors(served: httpx.AsyncClient, path: str) -> None:
    items = [{"text": text} for text in TEXTS]
    types = ["float", "base64", "int8", "uint8", "binary", "ubinary"]
    told = await embedded(served, path, model=EMBEDDER, texts=TEXTS, embedding_types=types)
    assert list(told) == types
    exact = await native(served, EMBEDDER, items)
    np.testing.assert_allclose(told["float"], exact, atol=1e-6)
    decoded = [np.frombuffer(base64.b64decode(text), "<f4") for text in told["base64"]]
    np.testing.assert_allclose(decoded, exact, atol=1e-6)
    for name in ("int8", "uint8", "ubinary"):
        np.testing.assert_array_equal(told[name], await native(served, EMBEDDER, items, output_dtype=name))
    np.testing.assert_array_equal(np.array(told["binary"]), np.array(told["ubinary"]) - 128)
    bits = np.unpackbits(np.array(told["ubinary"], np.uint8), axis=1)
    np.testing.assert_array_equal(bits, exact > 0)


@on_engine
@pytest.mark.parametrize("path", PATHS)
async def test_the_input_type_chooses_the_prompt(served: httpx.AsyncClient, path: str) -> None:
    for given, meant in (("search_query", "query"), ("search_document", "document")):
        expected = await native(served, EMBEDDER, [{"text": text} for text in TEXTS], input_type=meant)
        told = await embedded(served, path, texts=TEXTS, input_type=given, embedding_types=["float"])
        np.testing.assert_allclose(told["float"], expected, atol=1e-6)


@on_engine
@pytest.mark.parametrize("path", PATHS)
async def test_sizes_and_truncation(served: httpx.AsyncClient, path: str) -> None:
    short = await embedded(served, path, texts=TEXTS, output_dimension=8, embedding_types=["float"])
    expected = await native(served, EMBEDDER, [{"text": text} for text in TEXTS], dimensions=8)
    np.testing.assert_allclose(short["float"], expected, atol=1e-6)
    words = [f"w{number}" for number in range(20)]
    body = {"model": "sie-fake/dense", "texts": [" ".join(words)], "embedding_types": ["float"]}
    for truncate, kept in (("START", words[4:]), ("END", words[:16]), (None, words[:16])):
        expected = await native(served, "sie-fake/dense", [{"text": " ".join(kept)}])
        told = await embedded(served, path, **body, truncate=truncate)
        np.testing.assert_allclose(told["float"], expected, atol=1e-6)
    refused = await served.post(path, json=body | {"truncate": "NONE"})
    assert (refused.status_code, refused.json()["param"]) == (400, "texts[0]")
    assert refused.json()["code"] == "INPUT_TOO_LONG"


@on_engine
@pytest.mark.parametrize("path", PATHS)
async def test_pictures_and_inputs_of_both(served: httpx.AsyncClient, path: str) -> None:
    picture = {"data": PICTURE, "format": "png"}
    seen = await native(served, MEDIA, [{"images": [picture]}])
    both = await native(served, MEDIA, [{"text": "a fox", "images": [picture]}, {"text": "a fox"}])
    body = {"model": MEDIA, "embedding_types": ["float"]}
    for images in ([DATA_URI], [DATA_URI.replace("png", "PNG")]):
        told = await embedded(served, path, **body, images=images, input_type="image")
        np.testing.assert_allclose(told["float"], seen, atol=1e-6)
    text, image = {"type": "text", "text": "a fox"}, {"type": "image_url", "image_url": {"url": DATA_URI}}
    told = await embedded(served, path, **body, inputs=[{"content": [text, image]}, {"content": [text]}])
    np.testing.assert_allclose(told["float"], both, atol=1e-6)


@on_engine
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({}, None, "one of `texts`, `images`, `inputs`"),
        ({"texts": ["x"], "images": [DATA_URI]}, None, "one of"),
        ({"texts": []}, "texts", "1"),
        ({"texts": ["x"] * (MAX_EMBEDDING_INPUTS + 1)}, "texts", "2048"),
        ({"texts": ["x", 7]}, "texts[1]", "string"),
        ({"texts": ["x"], "input_type": "question"}, "input_type", "search_query"),
        ({"texts": ["x"], "input_type": "clustering"}, "input_type", "input_type is no option"),
        ({"texts": ["x"], "embedding_types": ["float", "int4"]}, "embedding_types[1]", "int8"),
        ({"texts": ["x"], "truncate": "MIDDLE"}, "truncate", "START"),
        ({"texts": ["x"], "output_dimension": 7}, "output_dimension", "8, 16, 32"),
        ({"texts": ["x"], "max_tokens": 9}, "max_tokens", "truncate"),
        ({"texts": ["x"], "model": "sie-fake/reranker"}, "model", "score"),
        ({"texts": ["x"], "model": "../x"}, "model", ".."),
        ({"images": [DATA_URI]}, "images[0]", "takes text, no image"),
        ({"images": [DATA_URI, "https://a.test/b.png"], "model": MEDIA}, "images[1]", "fetches nothing"),
        ({"images": ["no base64"], "model": MEDIA}, "images[0]", "base64"),
        ({"images": ["data:image/png;base64,"], "model": MEDIA}, "images[0]", "base64"),
        ({"inputs": [{"content": []}]}, "inputs[0].content", "1"),
        ({"inputs": [{"content": [{"type": "text"}]}]}, "inputs[0].content[0].text", "missing"),
        ({"inputs": [{"content": [{"type": "text", "text": "x"}] * 2}]}, "inputs[0].content", "join"),
        ({"inputs": [{"content": [{"type": "audio"}]}]}, "inputs[0].content[0].type", "image_url"),
    ],
)  # fmt: skip
async def test_a_wrong_field_is_named_in_cohere_s_envelope(served, path: str, body, param, says) -> None:
    reply = await served.post(path, json=body)
    told = reply.json()
    assert reply.status_code == 400, reply.text
    assert told.get("param") == param
    assert says in told["message"]


@on_engine
@pytest.mark.parametrize("path", PATHS)
async def test_replies_are_as_described(served: httpx.AsyncClient, path: str) -> None:
    document = (await served.get("/openapi.json")).json()
    types = ["float", "base64", "int8", "uint8", "binary", "ubinary"]
    for body in (
        {"texts": ["x"]},
        {"texts": ["x"], "embedding_types": types},
        {},
        {"texts": ["x"], "model": "no/such"},
    ):
        check(document, path, "post", await served.post(path, json=body))


@pytest.mark.parametrize("path", PATHS)
async def test_classification_and_clustering_ask_for_the_weights_prompts_of_those_names(client, backend, path) -> None:
    for name in ("classification", "clustering"):
        await client.post(path, json={"model": "org/model", "texts": ["x"], "input_type": name, "unknown": None})
    assert [request.demands for request in backend.requests] == [
        {"prompt_name": "classification"},
        {"prompt_name": "clustering"},
    ]


@pytest.mark.parametrize("path", PATHS)
async def test_the_default_model_answers_a_body_without_one(client, backend, settings, path) -> None:
    for body in ({}, {"model": None}):
        await client.post(path, json={"texts": ["x"]} | body)
    assert [request.model for request in backend.requests] == [settings.default_model] * 2
    assert {request.load_wait.seconds for request in backend.requests} == {settings.model_wait_s}
