"""Whatever is wrong with a request, it is answered with a 4xx that names the field, and nothing reaches the backend."""

import httpx
import pytest
from sie_sdk import wire

ENCODE = "/v1/encode/org/model"
JSON = {"Content-Type": "application/json"}
MSGPACK = {"Content-Type": "application/msgpack"}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "items"),
        ({"items": None}, "items"),
        ({"items": []}, "items"),
        ({"items": {}}, "items"),
        ({"items": "text"}, "items"),
        ({"items": ["text"]}, "items"),
        ({"items": [{"text": "x"}, "text"]}, "items"),
        ({"items": [None]}, "items[0]"),
        ({"items": [{"text": "x"}, {"text": 5}]}, "items[1].text"),
        ({"items": [{"text": ["x"]}]}, "items[0].text"),
        ({"items": [{"id": 7, "text": "x"}]}, "items[0].id"),
        ({"items": [{"images": [{"data": 1}]}]}, "items[0].images[0].data"),
        ({"items": [{"audio": {"sample_rate": 8000}}]}, "items[0].audio.data"),
        ({"items": [{"metadata": []}]}, "items[0].metadata"),
        ({"items": [{"text": "x"}], "params": []}, "params"),
        ({"items": [{"text": "x"}], "params": {"output_types": []}}, "params.output_types"),
        ({"items": [{"text": "x"}], "params": {"output_types": ["thick"]}}, "params.output_types[0]"),
        ({"items": [{"text": "x"}], "params": {"output_dtype": 8}}, "params.output_dtype"),
        ({"items": [{"text": "x"}], "params": {"truncate": "middle"}}, "params.truncate"),
        ({"items": [{"text": "x"}], "params": {"dimensions": True}}, "params.dimensions"),
        ({"items": [{"text": "x"}], "params": {"dimensions": 0}}, "params.dimensions"),
        ({"items": [{"text": "x"}], "params": {"options": "fast"}}, "params.options"),
        ({"items": [{"text": "é" * 501}]}, "items[0]"),
        ({"items": [{"text": "x", "metadata": {"m": "y" * 1000}}]}, "items[0]"),
    ],
)
async def test_a_field_of_the_wrong_form_is_named(client: httpx.AsyncClient, backend, body, param) -> None:
    for content, headers in ((wire.pack(body), MSGPACK), (None, {})):
        reply = await client.post(ENCODE, json=None if content else body, content=content, headers=headers)
        error = reply.json()["error"]
        assert (reply.status_code, error["code"], error["param"]) == (400, "INVALID_INPUT", param)
        assert param in error["message"]
    assert not backend.requests


@pytest.mark.parametrize("surplus", [{"sample_rate": "8"}, {"sample_rate": 0}, {"channels": 2}])
async def test_audio_takes_no_surplus(client: httpx.AsyncClient, surplus) -> None:
    reply = await client.post(ENCODE, json={"items": [{"audio": {"data": ""} | surplus}]})
    assert reply.json()["error"]["param"] == f"items[0].audio.{next(iter(surplus))}"


@pytest.mark.parametrize(
    ("content", "headers"),
    [
        (b"\xc1", MSGPACK),
        (b"\x81\xa5items", MSGPACK),
        (wire.pack({"items": [{"text": "x"}]}) + b"\x00", MSGPACK),
        (b"\x91" * 600 + b"\x90", MSGPACK),
        (b"\xdd\xff\xff\xff\xff", MSGPACK),
        (b"\x81\xa5items\x91\x81\xa4text\xa1\xff", MSGPACK),
        (b"{", JSON),
        (b"", JSON),
        (b'{"items": [{"text": "\xff"}]}', JSON),
        (b'{"items": [{"text": "\\ud83d"}]}', JSON),
        (b'{"items": [{"text": "x"}], "params": {"dimensions": NaN}}', JSON),
        (b'{"items": [{"text": "x", "text": "y"}]}', JSON),
        (b'{"items": [{"metadata": ' + b'{"a":' * 300 + b"1" + b"}" * 300 + b"}]}", JSON),
        (b"[1]", JSON),
        (b"null", JSON),
    ],
)
async def test_a_broken_body_is_a_400(client: httpx.AsyncClient, backend, content, headers) -> None:
    reply = await client.post(ENCODE, content=content, headers=headers)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "INVALID_INPUT")
    assert not backend.requests


async def test_an_announced_body_above_the_limit_is_413_unread(client: httpx.AsyncClient) -> None:
    reply = await client.post(ENCODE, content=b"x" * 10_001, headers=JSON)
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "PAYLOAD_TOO_LARGE")
    assert "10000" in reply.json()["error"]["message"]


async def test_a_body_without_a_length_is_cut_off_at_the_limit(client: httpx.AsyncClient) -> None:
    sent = 0

    async def endless():
        nonlocal sent
        while sent < 2**24:
            sent += 1000
            yield b"x" * 1000

    reply = await client.post(ENCODE, content=endless(), headers=JSON)
    assert reply.status_code == 413
    assert sent <= 20_000


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "code"),
    [
        ("GET", "/v1/nothing", {}, 404, "NOT_FOUND"),
        ("GET", ENCODE, {}, 405, "METHOD_NOT_ALLOWED"),
        ("DELETE", "/v1/models", {}, 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/v1/models/no/such", {}, 404, "MODEL_NOT_FOUND"),
        ("GET", "/v1/models/a%2f..%2fb", {}, 400, "INVALID_INPUT"),
        ("POST", "/v1/encode/..%2f..%2fetc", JSON, 400, "INVALID_INPUT"),
        ("POST", "/v1/encode//etc/passwd", JSON, 400, "INVALID_INPUT"),
        ("POST", "/v1/encode/a%00b", JSON, 400, "INVALID_INPUT"),
        ("POST", "/v1/encode/" + "a" * 257, JSON, 400, "INVALID_INPUT"),
        ("POST", ENCODE, {"Content-Type": "image/png"}, 415, "UNSUPPORTED_MEDIA_TYPE"),
        ("POST", ENCODE, JSON | {"Content-Encoding": "br"}, 415, "UNSUPPORTED_MEDIA_TYPE"),
        ("POST", ENCODE, JSON | {"Accept": "text/html"}, 406, "NOT_ACCEPTABLE"),
        ("POST", ENCODE, JSON | {"X-SIE-MACHINE-PROFILE": "l4"}, 400, "INVALID_INPUT"),
        ("POST", ENCODE, JSON | {"X-SIE-Remote": "allow"}, 400, "INVALID_INPUT"),
        ("POST", ENCODE, JSON | {"X-SIE-Timeout-Ms": "soon"}, 400, "INVALID_INPUT"),
        ("POST", ENCODE, JSON | {"X-SIE-Timeout-Ms": "-1"}, 400, "INVALID_INPUT"),
        ("POST", ENCODE, JSON | {"X-SIE-Timeout-Ms": "nan"}, 400, "INVALID_INPUT"),
    ],
)
async def test_every_refusal_has_the_one_shape(client, backend, method, path, headers, status, code) -> None:
    content = b'{"items": [{"text": "x"}]}' if method == "POST" else None
    request = client.build_request(method, "http://sie", headers=headers, content=content)
    request.url = httpx.URL("http://sie").copy_with(raw_path=path.encode())
    reply = await client.send(request)
    body = reply.json()
    assert (reply.status_code, body["error"]["code"]) == (status, code)
    assert body.keys() == {"error"}
    assert body["error"]["message"].endswith(".")
    assert reply.headers["content-type"] == "application/json"
    is_native = "type" not in body["error"]  # a path that nothing serves is answered as OpenAI does
    assert body["error"].get("request_id") == (reply.headers["x-sie-request-id"] if is_native else None)
    assert not backend.requests


async def test_a_405_says_what_the_route_takes(client: httpx.AsyncClient) -> None:
    assert (await client.get(ENCODE)).headers["allow"] == "POST"


async def test_a_machine_profile_error_says_who_asked_for_what(client: httpx.AsyncClient) -> None:
    reply = await client.post(ENCODE, json={"items": [{}]}, headers={"X-SIE-MACHINE-PROFILE": "l4"})
    error = reply.json()["error"]
    assert (error["requested_profile"], error["worker_identity"]) == ("l4", None)
