"""Backends that have no tokenizer refuse what would need one; listing tokens ends when nobody waits for it."""

import asyncio

import httpx
import pytest


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/tei/org/model/tokenize", {"inputs": "x"}, 422, None),
        ("/tei/org/model/decode", {"ids": [1]}, 422, None),
        (
            "/v2/rerank",
            {"model": "org/model", "query": "x", "documents": ["a long one"], "max_tokens_per_doc": 2},
            400,
            "max_tokens_per_doc",
        ),
    ],
)
async def test_a_backend_without_tokenizers_refuses(client: httpx.AsyncClient, backend, path, body, status, param):
    reply = await client.post(path, json=body)
    assert reply.status_code == status
    assert "tokenizer" in reply.text
    assert reply.json().get("param") == param
    assert backend.requests == []


async def test_a_deadline_ends_the_listing_of_tokens(client: httpx.AsyncClient, backend):
    ended = asyncio.Event()

    async def tokenize(request):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.set()
            raise

    backend.tokenize = tokenize
    reply = await client.post("/tei/org/model/tokenize", json={"inputs": "x"}, headers={"X-SIE-Timeout-Ms": "20"})
    assert (reply.status_code, reply.json()["code"]) == (504, "DEADLINE_EXCEEDED")
    assert ended.is_set()


async def test_a_deadline_counts_for_the_cutting_of_documents_too(client: httpx.AsyncClient, backend):
    async def tokenize(request):
        await asyncio.Event().wait()

    backend.tokenize = tokenize
    body = {"model": "org/model", "query": "x", "documents": ["a long one"], "max_tokens_per_doc": 2}
    reply = await client.post("/v2/rerank", json=body, headers={"X-SIE-Timeout-Ms": "20"})
    assert (reply.status_code, reply.json()["code"]) == (504, "DEADLINE_EXCEEDED")
    assert backend.requests == []
