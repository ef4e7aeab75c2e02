"""The API over the real engine and the fakes: what only the two together decide."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator

import httpx
import numpy as np
import pytest
import pytest_asyncio
from sie_sdk import wire

from sie_core.defaults import BUILTINS
from sie_core.plugins import PluginSet, discover
from sie_core.settings import Settings
from tests.api.serving import OVER, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

URL = "/v1/encode/sie-fake/embedder"
MSGPACK = {"Content-Type": "application/msgpack"}


@pytest.fixture(scope="module")
def plugins() -> PluginSet:
    return discover(Settings(), BUILTINS)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=OVER)
async def client(
    request: pytest.FixtureRequest, plugins: PluginSet, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[httpx.AsyncClient]:
    models_dir = tmp_path_factory.mktemp("models")
    settings = Settings(
        models_dir=models_dir, preload_models=("sie-fake/embedder", "sie-fake/dense"), hf_fallback=False
    )
    async with serving(settings, request.param) as client:
        yield client


def items(*texts: str) -> list[dict[str, str]]:
    return [{"text": text} for text in texts]


async def vector(client: httpx.AsyncClient, text: str) -> list[float]:
    body = (await client.post(URL, json={"items": items(text)})).json()
    values: list[float] = body["items"][0]["dense"]["values"]
    return values


async def test_every_output_type_travels_in_both_formats(client: httpx.AsyncClient) -> None:
    body = {"items": items("three small words"), "params": {"output_types": ["dense", "sparse", "multivector"]}}
    plain = (await client.post(URL, json=body)).json()["items"][0]
    packed = wire.unpack((await client.post(URL, content=wire.pack(body), headers=MSGPACK)).content)["items"][0]
    assert packed["dense"]["values"].tolist() == pytest.approx(plain["dense"]["values"], abs=1e-7)
    assert packed["sparse"]["indices"].dtype == np.int32
    assert packed["sparse"]["indices"].tolist() == plain["sparse"]["indices"]
    multivector = packed["multivector"]
    assert multivector["values"].shape == (multivector["num_tokens"], multivector["token_dims"])
    assert np.allclose(multivector["values"], plain["multivector"]["values"])


@pytest.mark.parametrize("dtype", ["float16", "int8", "uint8", "binary", "ubinary"])
async def test_every_dtype_travels_in_both_formats(client: httpx.AsyncClient, dtype) -> None:
    body = {"items": items("some text"), "params": {"output_dtype": dtype}}
    plain = (await client.post(URL, json=body)).json()["items"][0]["dense"]
    packed = wire.unpack((await client.post(URL, content=wire.pack(body), headers=MSGPACK)).content)
    dense = packed["items"][0]["dense"]
    assert dense["dtype"] == plain["dtype"] == dtype.replace("ubinary", "binary")
    assert dense["values"].astype(float).tolist() == pytest.approx(plain["values"])


async def test_both_routes_give_the_same_vector_and_count_the_same_tokens(client: httpx.AsyncClient) -> None:
    texts = ["one", "two words", "three small words"]
    native = (await client.post(URL, json={"items": items(*texts)})).json()
    openai = (await client.post("/v1/embeddings", json={"model": "sie-fake/embedder", "input": texts})).json()
    assert [entry["embedding"] for entry in openai["data"]] == [item["dense"]["values"] for item in native["items"]]
    assert openai["usage"]["prompt_tokens"] == openai["usage"]["total_tokens"] == native["usage"]["input_tokens"]
    coded = await client.post(
        "/v1/embeddings", json={"model": "sie-fake/embedder", "input": texts, "encoding_format": "base64"}
    )
    decoded = [np.frombuffer(base64.b64decode(entry["embedding"]), "<f4") for entry in coded.json()["data"]]
    assert np.array_equal(decoded, np.array([entry["embedding"] for entry in openai["data"]], np.float32))


async def test_dimensions_are_the_declared_ones(client: httpx.AsyncClient) -> None:
    for size in (8, 16, 32):
        body = {"model": "sie-fake/embedder", "input": "x", "dimensions": size}
        assert len((await client.post("/v1/embeddings", json=body)).json()["data"][0]["embedding"]) == size
    for size in (7, 0, -1, 64):
        body = {"model": "sie-fake/embedder", "input": "x", "dimensions": size}
        error = (await client.post("/v1/embeddings", json=body)).json()["error"]
        assert error["param"] == "dimensions"
        if size > 0:
            assert "8, 16, 32" in error["message"]


async def test_token_ids_are_taken_where_the_config_says_so(client: httpx.AsyncClient) -> None:
    taken = await client.post("/v1/embeddings", json={"model": "sie-fake/dense", "input": [[1, 2, 3], [4]]})
    assert taken.status_code == 200
    assert taken.json()["usage"]["prompt_tokens"] == 4
    refused = await client.post("/v1/embeddings", json={"model": "sie-fake/embedder", "input": [1]})
    assert "check_embedding_ctx_length=False" in refused.json()["error"]["message"]
    body = {"items": [{"text": "7 42"}, {"token_ids": [7, 42]}]}
    text, ids = (await client.post("/v1/encode/sie-fake/dense", json=body)).json()["items"]
    assert text == ids
    refused = await client.post(URL, json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "items")
    assert "accept_token_ids" in refused.json()["error"]["message"]


async def test_truncation_is_reported_or_refused(client: httpx.AsyncClient) -> None:
    body = {"items": items("short", "word " * 40)}
    reply = await client.post("/v1/encode/sie-fake/dense", json=body)
    assert reply.headers["x-sie-truncated"] == "1"
    short, long = reply.json()["items"]
    assert "truncated" not in short
    assert long["truncated"]["tokens"] > long["truncated"]["kept"] == 16
    refused = await client.post("/v1/encode/sie-fake/dense", json=body | {"params": {"truncate": "error"}})
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["param"]) == (400, "INPUT_TOO_LONG", "items[1].text")
    spelt = body | {"params": {"options": {"overflow_policy": "error"}}}
    again = (await client.post("/v1/encode/sie-fake/dense", json=spelt)).json()["error"]
    assert again | {"request_id": error["request_id"]} == error


async def test_openais_clients_read_their_own_name_of_a_field(client: httpx.AsyncClient) -> None:
    body = {"model": "sie-fake/dense", "truncate": "error"}
    listed = await client.post("/v1/embeddings", json=body | {"input": ["short", "word " * 40]})
    single = await client.post("/v1/embeddings", json=body | {"input": "word " * 40})
    for reply, param in ((listed, "input[1]"), (single, "input")):
        error = reply.json()["error"]
        assert (error["code"], error["param"]) == ("INPUT_TOO_LONG", param)
        assert "items" not in error["message"]


async def test_is_query_selects_the_query_prompt(client: httpx.AsyncClient) -> None:
    async def dense(params: dict) -> list[float]:
        body = (await client.post(URL, json={"items": items("text"), "params": params})).json()
        return body["items"][0]["dense"]["values"]

    query = await dense({"options": {"is_query": True}})
    assert query == await dense({"input_type": "query"}) == await dense({"is_query": True})
    assert query != await dense({"options": {"is_query": False}})
    assert query != await dense({})


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"output_dtype": "float8"}, "params.output_dtype"),
        ({"options": {"surprise": 1}}, "params.options.surprise"),
        ({"options": {"latency_ms": "slow"}}, "params.options.latency_ms"),
        ({"options": {"load_s": 1.0}}, "params.options.load_s"),
        ({"options": {"is_query": 1}}, "params.options.is_query"),
        ({"options": {"overflow_policy": "drop"}}, "params.options.overflow_policy"),
        ({"dimensions": 9}, "params.dimensions"),
    ],
)
async def test_what_the_engine_refuses_is_named(client: httpx.AsyncClient, params, param) -> None:
    reply = await client.post(URL, json={"items": items("x"), "params": params})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param


async def test_unknown_models_are_answered_with_near_names(client: httpx.AsyncClient) -> None:
    native = await client.post("/v1/encode/sie-fake/embeder", json={"items": items("x")})
    openai = await client.post("/v1/embeddings", json={"model": "sie-fake/embeder", "input": "x"})
    for reply in (native, openai):
        assert reply.status_code == 404
        assert "sie-fake/embedder" in reply.json()["error"]["message"]


async def test_nan_never_leaves_and_the_item_is_named(client: httpx.AsyncClient) -> None:
    body = {"items": items("fine", "this is [nan]"), "params": {"options": {"nan_text": "[nan]"}}}
    reply = await client.post(URL, json=body)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (500, "NON_FINITE_OUTPUT")
    assert "items[1]" in (error.get("param"), error["message"])


async def test_a_model_that_is_not_loaded_answers_at_once_and_loads(client: httpx.AsyncClient) -> None:
    url = "/v1/encode/sie-fake/embedder:faulty"
    reply = await client.post(url, json={"items": items("x")}, headers={"Prefer": "wait=0"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "MODEL_LOADING")
    assert float(reply.headers["retry-after"]) > 0
    waited = await client.post(url, json={"items": items("x")}, headers={"Prefer": "wait=30"})
    assert waited.status_code == 200
    openai = await client.post("/v1/embeddings", json={"model": "sie-fake/embedder:slow", "input": "x"})
    assert openai.status_code == 200


async def test_bad_requests_among_good_ones_disturb_nobody(client: httpx.AsyncClient) -> None:
    expected = await vector(client, "good")
    bad = [
        client.post(URL, content=b"\xc1", headers=MSGPACK),
        client.post(URL, content=b"{"),
        client.post(URL, json={"items": []}),
        client.post(URL, json={"items": items("x"), "params": {"output_dtype": "float8"}}),
        client.post(URL, json={"items": items("[crash]"), "params": {"options": {"crash_text": "[crash]"}}}),
        client.post("/v1/encode/no/model", json={"items": items("x")}),
    ]
    good = [vector(client, "good") for _ in range(12)]
    mixed = [task for pair in zip(bad, good, strict=False) for task in pair] + good[len(bad) :]
    results = await asyncio.gather(*mixed)
    refused = [result.status_code for result in results if isinstance(result, httpx.Response)]
    assert sorted(refused) == [400, 400, 400, 400, 404, 500]
    assert [result for result in results if isinstance(result, list)] == [expected] * 12


@pytest.mark.parametrize("item", [{}, {"id": "only"}, {"images": [{"data": base64.b64encode(b"png").decode()}]}])
async def test_an_item_the_model_cannot_read_is_named(client: httpx.AsyncClient, item) -> None:
    reply = await client.post(URL, json={"items": [{"text": "x"}, item]})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"].startswith("items[1]")


async def test_metrics_show_the_backend_and_http_in_one_page(client: httpx.AsyncClient) -> None:
    await client.post(URL, json={"items": items("x")})
    text = (await client.get("/metrics", headers={"Accept": "text/plain"})).text
    of_engine = 'sie_requests_total{model="sie-fake/embedder",operation="encode",outcome="ok"}' in text
    assert of_engine != ("sie_gateway_slices_total" in text)
    assert 'sie_http_requests_total{method="POST",route="/v1/encode/{model:path}",status="200"}' in text


async def test_a_model_without_dense_vectors_is_the_wrong_model_for_embeddings(client: httpx.AsyncClient) -> None:
    reply = await client.post("/v1/embeddings", json={"model": "sie-fake/tokens", "input": "some text"})
    error = reply.json()["error"]
    assert (reply.status_code, error["code"], error["param"]) == (400, "invalid_request", "model")
    assert "gives multivector, not dense" in error["message"]
