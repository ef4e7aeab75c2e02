"""Backends and models that have no tokenizer refuse what would need one."""

import httpx
import pytest


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/tei/org/model/tokenize", {"inputs": "x"}, 422, None),
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
