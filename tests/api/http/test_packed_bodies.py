"""Compressed bodies of requests, and JSON that begins with a byte order mark."""

from __future__ import annotations

import gzip
import json
import tracemalloc

import httpx
import pytest
from backports import zstd
from sie_sdk import wire

from sie_core.api import create_app
from sie_core.api.codings.unpacking import unpacked
from sie_core.api.http.gate import Gate
from sie_core.api.http.limits import MAX_ZSTD_WINDOW
from sie_core.api.http.offload import LARGE, BodyThreads

URL = "/v1/encode/org/model"
EMBEDDINGS = "/v1/embeddings"
BODY = json.dumps({"model": "org/model", "items": [{"text": "four"}]}).encode()
JSON, MSGPACK = "application/json", "application/msgpack"
PACK = {"gzip": gzip.compress, "zstd": zstd.compress}
BOMB = 2**27


@pytest.fixture(params=PACK)
def coding(request) -> str:
    return request.param


async def post(client: httpx.AsyncClient, coding: str, content: bytes, form: str = JSON) -> httpx.Response:
    headers = {"Content-Encoding": coding, "Content-Type": form}
    return await client.post(URL, content=content, headers=headers)


async def test_a_packed_body_is_answered_as_the_plain_one(client, backend, coding: str) -> None:
    plain = await client.post(URL, content=BODY)
    assert (await post(client, coding, PACK[coding](BODY))).json() == plain.json()
    assert (await post(client, coding.upper(), PACK[coding](BODY))).json() == plain.json()
    packed = await post(client, coding, PACK[coding](wire.pack({"items": [{"text": "four"}]})), MSGPACK)
    assert packed.content == (await client.post(URL, content=BODY, headers={"Accept": MSGPACK})).content
    assert [request.items[0].text for request in backend.requests] == ["four"] * 5


async def test_members_that_follow_one_another_are_one_body(client, coding: str) -> None:
    content = PACK[coding](BODY[:9]) + PACK[coding](BODY[9:])
    assert (await post(client, coding, content)).status_code == 200


async def test_a_body_beyond_the_limit_once_unpacked_is_413(client, backend, coding: str) -> None:
    content = PACK[coding](BODY + b" " * 10_000)
    assert len(content) < 1_000
    reply = await post(client, coding, content)
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "PAYLOAD_TOO_LARGE")
    assert not backend.requests


@pytest.mark.parametrize("limit", [10_000, LARGE, 4 * LARGE])
async def test_a_bomb_is_unpacked_no_further_than_the_limit(coding: str, limit: int) -> None:
    bomb, threads = PACK[coding](b" " * BOMB), BodyThreads()
    tracemalloc.start()
    try:
        assert await unpacked(bomb, coding, limit, threads) is None
        assert tracemalloc.get_traced_memory()[1] < BOMB / 8
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [1, LARGE - 1, LARGE, LARGE + 1, 3 * LARGE])
async def test_every_size_is_unpacked_whole(coding: str, size: int) -> None:
    content = (b"0123456789abcdef" * size)[:size]
    for limit, expected in ((size, content), (size + 1, content), (size - 1, None)):
        assert await unpacked(PACK[coding](content), coding, limit, BodyThreads()) == expected


async def test_the_gate_counts_the_bytes_unpacked(backend, settings, coding: str) -> None:
    app = create_app(backend, settings, gate=Gate(2, most_bytes=6_000))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://sie") as client:
        assert (await post(client, coding, PACK[coding](BODY))).status_code == 200
        reply = await post(client, coding, PACK[coding](BODY + b" " * 5_000))
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "QUEUE_FULL")


@pytest.mark.parametrize("change", [lambda body: b"nonsense", lambda body: body[:-9] + b"\0" * 9, lambda body: b""])
async def test_a_body_that_is_not_what_it_says_is_a_400(client, coding: str, change) -> None:
    reply = await post(client, coding, change(PACK[coding](BODY)))
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "INVALID_INPUT")


async def test_zstd_that_looks_back_far_is_refused(client) -> None:
    wide = {
        zstd.CompressionParameter.window_log: MAX_ZSTD_WINDOW.bit_length(),
        zstd.CompressionParameter.content_size_flag: False,
    }
    packing = zstd.ZstdCompressor(options=wide)
    reply = await post(client, "zstd", packing.compress(BODY) + packing.flush())
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "Content-Encoding")


@pytest.mark.parametrize("encoding", ["br", "gzip, zstd", "compress"])
@pytest.mark.parametrize("url", [URL, EMBEDDINGS])
async def test_any_other_coding_is_415_and_names_those_known(client, url: str, encoding: str) -> None:
    reply = await client.post(url, content=BODY, headers={"Content-Encoding": encoding})
    assert (reply.status_code, reply.json()["error"]["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert "gzip, zstd or identity" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("url", "body"),
    [
        (URL, {"items": [{"text": "x"}]}),
        (EMBEDDINGS, {"model": "org/model", "input": "x"}),
        ("/tei/org/model/rerank", {"query": "x", "texts": ["y"]}),
        ("/tei/org/model", {"inputs": "x"}),
    ],
)
async def test_a_byte_order_mark_before_json_is_passed_over(client, url: str, body: dict) -> None:
    expected = await client.post(url, json=body)
    reply = await client.post(url, content=b"\xef\xbb\xbf" + json.dumps(body).encode())
    assert (reply.status_code, reply.content) == (expected.status_code, expected.content)
    twice = await client.post(url, content=b"\xef\xbb\xbf" * 2 + json.dumps(body).encode())
    assert twice.status_code in (400, 422)


async def test_a_body_of_a_few_members_is_read_and_one_of_many_is_refused(client, coding: str) -> None:
    body = json.dumps({"model": "org/model", "input": "four"}).encode()
    headers = {"Content-Encoding": coding, "Content-Type": "application/json"}
    halves = PACK[coding](body[:10]) + PACK[coding](body[10:])
    assert (await client.post("/v1/embeddings", content=halves, headers=headers)).status_code == 200
    empty = PACK[coding](b"") * 200
    many = await client.post("/v1/embeddings", content=empty + PACK[coding](body), headers=headers)
    assert many.status_code == 400
    assert "more than 16 members" in many.text
