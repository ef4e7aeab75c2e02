import base64

import httpx
import numpy as np
import pytest
from sie_sdk import wire

URL = "/v1/encode/org/model"
MSGPACK = {"Content-Type": "application/msgpack"}


async def test_items_come_back_in_order_with_the_ids_they_had(client: httpx.AsyncClient) -> None:
    items = [{"text": "one"}, {"text": "three", "id": "b"}, {"text": ""}]
    body = (await client.post(URL, json={"items": items})).json()
    assert [item["dense"]["values"] for item in body["items"]] == [[3.0] * 4, [5.0] * 4, [0.0] * 4]
    assert [item.get("id") for item in body["items"]] == [None, "b", None]
    assert "id" not in body["items"][0]
    assert body["model"] == "org/model"
    assert body["usage"] == {"input_tokens": 8}
    assert body["timing"]["total_ms"] == 12.345
    assert body["timing"]["postprocessing_ms"] is None


async def test_msgpack_carries_arrays_and_json_the_same_numbers(client: httpx.AsyncClient) -> None:
    body = {"items": [{"text": "some"}]}
    packed = await client.post(URL, content=wire.pack(body), headers=MSGPACK)
    assert packed.headers["content-type"] == "application/msgpack"
    dense = wire.unpack(packed.content)["items"][0]["dense"]
    assert isinstance(dense["values"], np.ndarray)
    assert dense["values"].dtype == np.float32
    plain = (await client.post(URL, json=body)).json()
    assert dense["values"].tolist() == plain["items"][0]["dense"]["values"]


async def test_request_and_reply_may_differ_in_format(client: httpx.AsyncClient) -> None:
    body = {"items": [{"text": "some"}]}
    mixed = await client.post(URL, json=body, headers={"Accept": "application/msgpack"})
    assert wire.unpack(mixed.content)["model"] == "org/model"
    mixed = await client.post(URL, content=wire.pack(body), headers=MSGPACK | {"Accept": "application/json"})
    assert mixed.json()["model"] == "org/model"


async def test_media_are_base64_in_json_and_bytes_in_msgpack(client: httpx.AsyncClient, backend) -> None:
    image = {"data": base64.b64encode(b"\x00\xffpixels").decode(), "format": "png"}
    await client.post(URL, json={"items": [{"images": [image]}]})
    packed = wire.pack({"items": [{"images": [{"data": b"\x00\xffpixels", "format": "png"}]}]})
    await client.post(URL, content=packed, headers=MSGPACK)
    first, second = (request.items[0].images for request in backend.requests)
    assert first == second
    assert first[0].data == b"\x00\xffpixels"
    refused = await client.post(URL, content=wire.pack({"items": [{"images": [image]}]}), headers=MSGPACK)
    assert refused.json()["error"]["param"] == "items[0].images[0].data"
    refused = await client.post(URL, json={"items": [{"images": [{"data": "no base64!"}]}]})
    assert refused.json()["error"]["param"] == "items[0].images[0].data"


async def test_what_is_not_said_stays_open(client: httpx.AsyncClient, backend) -> None:
    await client.post(URL, json={"items": [{"text": "x"}], "params": None})
    (request,) = backend.requests
    assert request.model == "org/model"
    for field in ("output_types", "output_dtype", "input_type", "instruction", "truncate", "dimensions", "deadline"):
        assert getattr(request, field) is None, field
    assert request.options == {}
    assert (request.load_wait.seconds, request.load_wait.if_soon) == (2, True)


async def test_params_reach_the_backend(client: httpx.AsyncClient, backend) -> None:
    params = {
        "output_types": ["dense", "sparse"], "output_dtype": "int8", "instruction": "Find:", "input_type": "query",
        "truncate": "start", "dimensions": 2, "options": {"salt": "x"},
    }  # fmt: skip
    await client.post(URL, json={"items": [{"text": "x"}], "params": params})
    (request,) = backend.requests
    assert request.output_types == ("dense", "sparse")
    assert (request.output_dtype, request.instruction, request.input_type) == ("int8", "Find:", "query")
    assert (request.truncate, request.dimensions, request.options) == ("start", 2, {"salt": "x"})


@pytest.mark.parametrize(
    ("params", "input_type", "truncate"),
    [
        ({"options": {"is_query": True}}, "query", None),
        ({"options": {"is_query": False}}, "document", None),
        ({"is_query": True, "input_type": "query"}, "query", None),
        ({"options": {"overflow_policy": "error"}}, None, "error"),
        ({"options": {"overflow_policy": "truncate_text"}, "truncate": "end"}, None, "end"),
        ({"options": {"overflow_policy": "default"}}, None, None),
    ],
)
async def test_each_choice_has_its_other_spellings(client, backend, params, input_type, truncate) -> None:
    await client.post(URL, json={"items": [{"text": "x"}], "params": params})
    (request,) = backend.requests
    assert (request.input_type, request.truncate) == (input_type, truncate)


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"input_type": "document", "options": {"is_query": True}}, "params.input_type"),
        ({"is_query": True, "options": {"is_query": False}}, "params.is_query"),
        ({"truncate": "start", "options": {"overflow_policy": "error"}}, "params.truncate"),
    ],
)
async def test_spellings_that_contradict_each_other_are_refused(client, backend, params, param) -> None:
    reply = await client.post(URL, json={"items": [{"text": "x"}], "params": params})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
    assert not backend.requests


async def test_unknown_keys_are_ignored_as_the_wire_demands(client: httpx.AsyncClient, backend) -> None:
    body = {"items": [{"text": "x", "multivector": [1]}], "later": 1, "params": {"later": 2}}
    assert (await client.post(URL, json=body)).status_code == 200
    assert backend.requests[0].items[0].text == "x"


async def test_a_request_larger_than_a_batch_is_not_refused(client: httpx.AsyncClient) -> None:
    reply = await client.post(URL, json={"items": [{"text": "x"}] * 600})
    assert len(reply.json()["items"]) == 600
