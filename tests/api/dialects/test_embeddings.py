import base64
import struct

import httpx
import pytest

URL = "/v1/embeddings"
MODEL = "org/model"


async def test_one_text_and_a_list_of_texts(client: httpx.AsyncClient) -> None:
    one = (await client.post(URL, json={"model": MODEL, "input": "four"})).json()
    assert one == {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": [4.0] * 4}],
        "model": MODEL,
        "usage": {"prompt_tokens": 4, "total_tokens": 4, "sie_token_source": "worker"},
    }
    many = (await client.post(URL, json={"model": MODEL, "input": ["a", "bbb"]})).json()
    assert [entry["embedding"][0] for entry in many["data"]] == [1.0, 3.0]
    assert [entry["index"] for entry in many["data"]] == [0, 1]


async def test_an_empty_text_is_embedded_like_any_other(client: httpx.AsyncClient, backend) -> None:
    for given in ("", ["", "bbb"]):
        reply = await client.post(URL, json={"model": MODEL, "input": given})
        assert reply.json()["data"][0]["embedding"] == [0.0] * 4
    assert [[item.text for item in request.items] for request in backend.requests] == [[""], ["", "bbb"]]


async def test_base64_is_little_endian_float32(client: httpx.AsyncClient) -> None:
    body = {"model": MODEL, "input": "four", "encoding_format": "base64"}
    text = (await client.post(URL, json=body)).json()["data"][0]["embedding"]
    assert struct.unpack("<4f", base64.b64decode(text)) == (4.0,) * 4


async def test_explicit_nulls_count_as_absent(client: httpx.AsyncClient, backend) -> None:
    optional = ("encoding_format", "dimensions", "user", "input_type", "truncate")
    reply = await client.post(URL, json={"model": MODEL, "input": "x"} | dict.fromkeys(optional))
    assert reply.json()["data"][0]["embedding"] == [1.0] * 4
    (request,) = backend.requests
    assert (request.dimensions, request.input_type, request.truncate) == (None, None, None)


async def test_it_asks_for_float32_dense_vectors_and_waits_for_the_model(client, backend, settings) -> None:
    body = {"model": MODEL, "input": "x", "dimensions": 2, "input_type": "query", "truncate": "error", "user": "me"}
    await client.post(URL, json=body)
    await client.post(URL, json=body, headers={"Prefer": "wait=3"})
    first, second = backend.requests
    assert (first.output_types, first.output_dtype, first.dimensions) == (("dense",), "float32", 2)
    assert (first.input_type, first.truncate) == ("query", "error")
    assert (first.load_wait.seconds, second.load_wait.seconds) == (settings.model_wait_s, 3)


@pytest.mark.parametrize(("word", "meant"), [("NONE", "error"), ("START", "start"), ("END", "end")])
async def test_nvidia_s_clients_say_where_a_text_is_cut(client, backend, word: str, meant: str) -> None:
    reply = await client.post(URL, json={"model": MODEL, "input": "x", "input_type": "passage", "truncate": word})
    assert reply.status_code == 200
    assert (backend.requests[0].truncate, backend.requests[0].input_type) == (meant, "document")


async def test_2048_inputs_are_taken_and_2049_are_not(client: httpx.AsyncClient) -> None:
    reply = await client.post(URL, json={"model": MODEL, "input": ["x"] * 2048})
    assert len(reply.json()["data"]) == 2048
    refused = await client.post(URL, json={"model": MODEL, "input": ["x"] * 2049})
    assert refused.status_code == 400
    assert "2048" in refused.json()["error"]["message"]


@pytest.mark.parametrize("given", [[1, 2, 3], [[1, 2], [3]], [1]])
async def test_token_ids_are_refused_with_the_usual_mistake_explained(client, backend, given) -> None:
    reply = await client.post(URL, json={"model": MODEL, "input": given})
    error = reply.json()["error"]
    assert (reply.status_code, error["param"], error["code"]) == (400, "input", "invalid_request")
    assert "check_embedding_ctx_length=False" in error["message"]
    assert not backend.requests


async def test_token_ids_reach_a_model_that_accepts_them(client: httpx.AsyncClient, backend) -> None:
    await client.post(URL, json={"model": "org/ids", "input": [5, 6]})
    await client.post(URL, json={"model": "org/ids", "input": [[5, 6], [7]]})
    assert [[item.token_ids for item in request.items] for request in backend.requests] == [[(5, 6)], [(5, 6), (7,)]]


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ([], "input"),
        (None, "input"),
        (7, "input"),
        ({}, "input"),
        (["a", 1], "input[1]"),
        (["a", ["b"]], "input[1]"),
        ([None], "input[0]"),
        ([[]], "input[0]"),
        ([[1], "a"], "input[1]"),
        ([1, "a"], "input"),
        ([1, -2], "input"),
        ([True], "input[0]"),
        (["x" * 1001], "input[0]"),
    ],
)
async def test_a_wrong_input_is_named(client: httpx.AsyncClient, backend, given, param) -> None:
    reply = await client.post(URL, json={"model": MODEL, "input": given})
    error = reply.json()["error"]
    assert reply.status_code == 400
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    assert not backend.requests


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"model": 7}, "model"),
        ({"model": ""}, "model"),
        ({"model": "../etc"}, "model"),
        ({"encoding_format": "hex"}, "encoding_format"),
        ({"dimensions": "2"}, "dimensions"),
        ({"input_type": "question"}, "input_type"),
        ({"truncate": "none"}, "truncate"),
    ],
)
async def test_a_wrong_field_is_named_in_openais_envelope(client: httpx.AsyncClient, change, param) -> None:
    reply = await client.post(URL, json={"model": MODEL, "input": "x"} | change)
    error = reply.json()["error"]
    assert reply.status_code == 400
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["param"] == param


@pytest.mark.parametrize("path", ["/v1/embeddings", "/embeddings"])
@pytest.mark.parametrize("change", [{}, {"model": None}])
async def test_without_a_model_the_default_one_embeds(client, backend, settings, path, change) -> None:
    told = (await client.post(path, json={"input": "four"} | change)).json()
    assert told["model"] == settings.default_model == backend.requests[0].model
    assert told["data"][0]["embedding"] == [4.0] * 4


@pytest.mark.parametrize("path", ["/tei/org/model/v1/embeddings", "/tei/org/model/embeddings"])
@pytest.mark.parametrize("change", [{}, {"model": None}, {"model": "tei"}, {"model": "org/model"}])
async def test_below_a_model_the_body_does_not_choose_another(client: httpx.AsyncClient, backend, path, change) -> None:
    told = (await client.post(path, json={"input": ["four"], "encoding_format": "base64"} | change)).json()
    assert told["model"] == "org/model" == backend.requests[0].model
    assert len(told["data"]) == 1


async def test_below_a_model_another_one_in_the_body_is_refused(client: httpx.AsyncClient) -> None:
    reply = await client.post("/tei/org/model/embeddings", json={"input": "four", "model": "org/other"})
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, "model")
    assert "'org/other'" in error["message"]
    assert "'org/model'" in error["message"]


@pytest.mark.parametrize("path", ["/embeddings", "/tei/org/model/v1/embeddings", "/tei/org/model/embeddings"])
async def test_their_refusals_are_openai_s(client: httpx.AsyncClient, path) -> None:
    reply = await client.post(path, json={"model": MODEL, "input": [None]})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "input[0]")
    assert reply.headers["x-sie-served-by"] == "local"


async def test_openais_clients_learn_that_a_model_is_unknown(client: httpx.AsyncClient, backend) -> None:
    async def look_up(request):
        backend.model(request.model)

    backend.act = look_up
    reply = await client.post(URL, json={"model": "org/modell", "input": "x"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "model_not_found")
    assert "org/model" in reply.json()["error"]["message"]


@pytest.mark.parametrize(("method", "status"), [("GET", 405), ("POST", 415)])
async def test_errors_of_the_router_have_openais_envelope_too(client: httpx.AsyncClient, method, status) -> None:
    reply = await client.request(method, URL, headers={"Content-Type": "application/msgpack"})
    assert reply.status_code == status
    assert reply.json()["error"].keys() == {"message", "type", "param", "code"}
