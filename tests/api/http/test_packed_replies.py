"""Replies are compressed where a client asks for it and it is cheap."""

from __future__ import annotations

import gzip
import json
import threading

import httpx
import pytest
from backports import zstd

from sie_core.api.codings.replies import ANSWERS, LEAST, LOOKUPS, PACKS, chosen

EMBEDDINGS = "/v1/embeddings"
BODY = {"model": "org/model", "input": ["four"] * 100}
PYTHONS = "gzip, deflate"
UNPACK = {"gzip": gzip.decompress, "zstd": zstd.decompress}


async def raw(client: httpx.AsyncClient, method: str, url: str, accept: str, **more) -> tuple[httpx.Response, bytes]:
    """Return a reply and its body as it was sent."""
    async with client.stream(
        method, url, headers={"Accept-Encoding": accept, **more.pop("headers", {})}, **more
    ) as got:
        return got, b"".join([part async for part in got.aiter_raw()])


@pytest.mark.parametrize(
    ("accept", "codings", "expected"),
    [
        ("", LOOKUPS, None),
        ("identity", LOOKUPS, None),
        (PYTHONS, LOOKUPS, "gzip"),
        (PYTHONS, ANSWERS, None),
        ("gzip, deflate, br, zstd", ANSWERS, "zstd"),
        ("gzip, deflate, br, zstd", LOOKUPS, "zstd"),
        ("zstd;q=0.5, gzip", LOOKUPS, "gzip"),
        ("GZIP ; Q=0.5", LOOKUPS, "gzip"),
        ("*", LOOKUPS, "zstd"),
        ("zstd;q=0, *", LOOKUPS, "gzip"),
        ("zstd;q=0", ANSWERS, None),
        ("zstd;q=much", ANSWERS, None),
    ],
)
def test_a_client_gets_what_it_likes_best(accept: str, codings: tuple[str, ...], expected: str | None) -> None:
    assert chosen(accept, codings) == expected


@pytest.mark.parametrize("coding", LOOKUPS)
async def test_lookups_are_compressed(client, coding: str) -> None:
    _, plain = await raw(client, "GET", "/openapi.json", "identity")
    reply, sent = await raw(client, "GET", "/openapi.json", coding)
    assert (reply.headers["content-encoding"], reply.headers["vary"]) == (coding, "Accept-Encoding")
    assert int(reply.headers["content-length"]) == len(sent) < len(plain) / 5
    assert UNPACK[coding](sent) == plain


async def test_answers_are_compressed_by_zstd(client) -> None:
    _, plain = await raw(client, "POST", EMBEDDINGS, "identity", json=BODY)
    reply, sent = await raw(client, "POST", EMBEDDINGS, "gzip, zstd", json=BODY)
    assert reply.headers["content-encoding"] == "zstd"
    assert UNPACK["zstd"](sent) == plain


@pytest.mark.parametrize(
    ("accept", "headers", "body"),
    [
        (PYTHONS, {}, BODY),
        ("zstd", {}, BODY | {"input": "x"}),
        ("zstd", {"Accept": "application/msgpack"}, {"items": [{"text": "x"}] * 100}),
    ],
)
async def test_what_does_not_pay_is_sent_as_it_is(client, accept: str, headers: dict, body: dict) -> None:
    url = "/v1/encode/org/model" if "items" in body else EMBEDDINGS
    reply, sent = await raw(client, "POST", url, accept, json=body, headers=headers)
    assert reply.status_code == 200
    assert "content-encoding" not in reply.headers
    assert int(reply.headers["content-length"]) == len(sent)
    assert len(sent) < LEAST or (accept, headers) != ("zstd", {})


async def test_a_streamed_answer_is_sent_as_it_is(client, monkeypatch) -> None:
    monkeypatch.setattr("sie_core.api.body.pieces.STREAMED", 1_000)
    monkeypatch.setattr("sie_core.api.body.json_body.SMALL", 1_000)
    reply, sent = await raw(client, "POST", EMBEDDINGS, "zstd", json=BODY)
    assert "content-encoding" not in reply.headers
    assert "content-length" not in reply.headers
    assert len(json.loads(sent)["data"]) == 100


@pytest.mark.parametrize(("count", "beside"), [(100, False), (2_048, True)])
async def test_a_large_answer_is_compressed_beside_the_loop(client, monkeypatch, count: int, beside: bool) -> None:
    threads, pack = [], PACKS["zstd"]

    def watched(body: bytes) -> bytes:
        threads.append(threading.current_thread())
        return pack(body)

    monkeypatch.setitem(PACKS, "zstd", watched)
    await raw(client, "POST", EMBEDDINGS, "zstd", json=BODY | {"input": ["x"] * count})
    assert [thread is not threading.current_thread() for thread in threads] == [beside]
