"""Every route answers over a cluster of real processes as the standalone server does, but for ids and times."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
from sie_sdk import SIEClient, wire
from sie_sdk._requests.media import png

OF_ONE_REPLY = {
    "date", "content-length", "x-sie-request-id", "x-sie-runtime-instance", "x-queue-time", "x-tokenization-time",
    "x-inference-time", "x-total-time", "x-postprocessing-time", "x-queue-wait-time",
    "x-sie-worker", "x-sie-model-revision",
}  # fmt: skip
"""Headers of one request, and those that only a queue or a config service gives."""
MSGPACK = {"Content-Type": "application/msgpack"}
JSON = {"Content-Type": "application/json"}
PICTURE_BYTES = png(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))
PICTURE = base64.b64encode(PICTURE_BYTES).decode()
EMBEDDER, RERANKER = "sie-fake/embedder", "sie-fake/reranker"
LONG = " ".join(["word"] * 600)
DOCUMENTS = [f"a red hat and {place} foxes" for place in range(70)]

ASKED: dict[str, tuple[str, Any]] = {
    "one text": (f"/v1/encode/{EMBEDDER}", {"items": [{"id": "a", "text": "a small model"}]}),
    "every output": (
        f"/v1/encode/{EMBEDDER}",
        {"items": [{"text": "x y"}], "params": {"output_types": ["dense", "sparse", "multivector"]}},
    ),
    "a thousand texts": (f"/v1/encode/{EMBEDDER}", {"items": [{"text": f"text {place}"} for place in range(1000)]}),
    "truncated": (f"/v1/encode/{EMBEDDER}", {"items": [{"text": LONG}] * 40}),
    "truncation refused": (
        f"/v1/encode/{EMBEDDER}",
        {"items": [{"text": "short"}] * 33 + [{"text": LONG}], "params": {"truncate": "error"}},
    ),
    "a query": (f"/v1/encode/{EMBEDDER}", {"items": [{"text": "q"}], "params": {"options": {"is_query": True}}}),
    "a dtype": (f"/v1/encode/{EMBEDDER}", {"items": [{"text": "x"}], "params": {"output_dtype": "int8"}}),
    "an unknown option": (f"/v1/encode/{EMBEDDER}", {"items": [{"text": "x"}], "params": {"options": {"nope": 1}}}),
    "an unknown profile": (f"/v1/encode/{EMBEDDER}:nope", {"items": [{"text": "x"}]}),
    # Not of the shape `org/name`: a server tells how one of the Hub is added, which a cluster does otherwise.
    "an unknown model": ("/v1/encode/embeder", {"items": [{"text": "x"}]}),
    "NaN": (f"/v1/encode/{EMBEDDER}:faulty", {"items": [{"text": "a"}] * 40 + [{"text": "[nan]"}]}),
    "a crash": (f"/v1/encode/{EMBEDDER}:faulty", {"items": [{"text": "[crash]"}]}),
    "a LoRA adapter": (
        f"/v1/encode/{EMBEDDER}:tuned",
        {"items": [{"text": "x"}] * 40, "params": {"options": {"lora": "legal"}}},
    ),
    "a picture": ("/v1/encode/sie-fake/media", {"items": [{"images": [{"data": PICTURE}]}, {"text": "x"}]}),
    "a text beyond a message": (f"/v1/encode/{EMBEDDER}", {"items": [{"text": "word " * 250_000}]}),
    "multi-vectors beyond a message": (
        f"/v1/encode/{EMBEDDER}",
        {
            "items": [{"text": f"{LONG[:2500]} {place}"} for place in range(32)],
            "params": {"output_types": ["multivector"]},
        },
    ),
    "MUVERA": ("/v1/encode/sie-fake/tokens:muvera", {"items": [{"text": "one two three"}]}),
    "no items": (f"/v1/encode/{EMBEDDER}", {"items": []}),
    "scores": (f"/v1/score/{RERANKER}", {"query": {"text": "red fox"}, "items": [{"text": t} for t in DOCUMENTS]}),
    "scores of vectors": (
        f"/v1/score/{EMBEDDER}",
        {"query": {"text": "red fox"}, "items": [{"text": t} for t in DOCUMENTS]},
    ),
    "scores of vectors by a long query": (
        f"/v1/score/{EMBEDDER}",
        {"query": {"text": LONG}, "items": [{"text": t} for t in DOCUMENTS]},
    ),
    "entities": (
        "/v1/extract/sie-fake/extractor",
        {"items": [{"text": "person=Ada of place=London"}], "params": {"labels": ["person", "place"]}},
    ),
    "labels missing": ("/v1/extract/sie-fake/extractor", {"items": [{"text": "person=Ada"}]}),
    "OpenAI": ("/v1/embeddings", {"model": EMBEDDER, "input": ["a", "b"], "encoding_format": "base64"}),
    "OpenAI, dimensions": ("/v1/embeddings", {"model": EMBEDDER, "input": "a", "dimensions": 8}),
    "OpenAI, token ids": ("/v1/embeddings", {"model": "sie-fake/dense", "input": [1, 2, 3]}),
    "Cohere, rerank": ("/v2/rerank", {"model": RERANKER, "query": "red fox", "documents": DOCUMENTS, "top_n": 3}),
    "Cohere, cut": (
        "/v2/rerank",
        {"model": RERANKER, "query": "red fox", "documents": DOCUMENTS, "max_tokens_per_doc": 3},
    ),
    "Cohere, embed": (
        "/v2/embed",
        {"model": EMBEDDER, "texts": ["a"], "input_type": "search_query", "embedding_types": ["float"]},
    ),
    "TEI": (f"/tei/{EMBEDDER}/embed", {"inputs": ["a", "b"]}),
    "TEI, tokens": (f"/tei/{EMBEDDER}/tokenize", {"inputs": ["one two", "three"]}),
}  # fmt: skip


def told(reply: httpx.Response) -> tuple[int, Any, dict[str, str]]:
    """What must be equal of a reply."""
    body = wire.unpack(reply.content) if "msgpack" in reply.headers["content-type"] else reply.json()
    if isinstance(body, dict):
        body.pop("timing", None)
        for name in ("id", "created"):
            body.pop(name, None)
    headers = {name: value for name, value in reply.headers.items() if name not in OF_ONE_REPLY}
    return reply.status_code, plain(body), headers


def plain(value: Any) -> Any:
    """Arrays as their dtype, shape and bytes: floats are compared bit for bit."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", ASKED)
def test_a_cluster_answers_as_the_server_does(cluster_server: str, fake_server: str, name: str) -> None:
    path, body = ASKED[name]
    kinds = [JSON, MSGPACK] if path.startswith(("/v1/encode", "/v1/score", "/v1/extract")) else [JSON]
    for kind in kinds:
        content = wire.pack(body) if kind is MSGPACK else None
        here, there = (
            httpx.post(
                url + path,
                json=None if content else body,
                content=content,
                headers={**kind, "Prefer": "wait=60", "X-SIE-Request-ID": "one"},
                timeout=90,
            )
            for url in (cluster_server, fake_server)
        )
        assert told(here) == told(there)


def test_models_are_described_as_their_worker_describes_them(cluster_server: str, fake_server: str) -> None:
    here, there = (httpx.get(f"{url}/v1/models/{EMBEDDER}", timeout=30).json() for url in (cluster_server, fake_server))
    passing = {"created", "last_used_at", "load_stages_s", "profiles", "loras", "memory_bytes"}
    of_a_cluster = {"bundles": ["default"], "workers": 2}
    assert {name: here[name] for name in here if name not in passing} == of_a_cluster | {
        name: there[name] for name in there if name not in passing
    }


def test_our_sdk_speaks_to_a_cluster(cluster_server: str, fake_server: str) -> None:
    for url in (cluster_server, fake_server):
        with SIEClient(url) as client:
            results = client.encode(EMBEDDER, [f"text {place}" for place in range(100)])
            assert len(results) == 100
            ranked = client.score(RERANKER, {"text": "red fox"}, [{"text": "a house"}, {"text": "a red fox"}])
            assert ranked["scores"][0]["item_id"] == "item-1"


def test_eight_large_answers_and_a_picture_at_once_are_right(cluster_server: str, fake_server: str) -> None:
    """At 33 MB each, and what they do to single texts, they are measured by the bench."""
    texts = {"items": [{"text": f"{LONG[:2500]} {place}"} for place in range(128)]}
    large = wire.pack(texts | {"params": {"output_types": ["multivector"]}})
    picture = wire.pack({"items": [{"images": [{"data": PICTURE_BYTES + bytes(5_000_000)}]}]})
    single = wire.pack({"items": [{"text": "a single text"}]})

    def ask(url: str, model: str, body: bytes) -> tuple[int, Any]:
        headers = {**MSGPACK, "Accept": "application/msgpack", "Prefer": "wait=60"}
        return told(httpx.post(f"{url}/v1/encode/{model}", content=body, headers=headers, timeout=90))[:2]

    asked = [(EMBEDDER, large)] * 8 + [("sie-fake/media", picture)] + [(EMBEDDER, single)] * 20
    right = {each: ask(fake_server, *each) for each in set(asked)}
    assert len(large) < 1 << 20 < len(str(right[EMBEDDER, large]))
    with ThreadPoolExecutor(len(asked)) as clients:
        answers = list(clients.map(lambda each: ask(cluster_server, *each), asked))
    assert [status for status, _ in answers] == [200] * len(asked)
    assert all(answer == right[each] for each, answer in zip(asked, answers, strict=True))
