"""The bodies that Dify and RAGFlow send to servers of other APIs, as data, and what they read of the replies.

Both are applications of many containers; what reaches a server from them are these requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import pytest
from sie_sdk import SIEClient

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
QUERY = "Which animal is a fox?"
TEXTS = ["A house in the snow", "The fox is a small red animal", "Foxes hunt at night"]

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Recorded:
    """One request of an integration, by the name its provider has there."""

    name: str
    path: str
    body: dict[str, Any]

    def post(self, url: str) -> Any:
        headers = {"Content-Type": "application/json", "Authorization": "Bearer none"}
        return httpx.post(url + self.path, json=self.body, headers=headers, timeout=60).raise_for_status().json()


EMBEDDINGS = [
    Recorded(
        "Dify: OpenAI-API-compatible",
        "/v1/embeddings",
        {"input": TEXTS, "model": MINILM, "encoding_format": "float", "user": "account-1"},
    ),
    Recorded("Dify: Xinference", "/v1/embeddings", {"model": MINILM, "input": TEXTS}),
    Recorded(
        "Dify: Jina, texts as maps",
        "/v1/embeddings",
        {"model": MINILM, "input": [{"text": text} for text in TEXTS]},
    ),
    Recorded(
        "Dify: Jina, by task",
        "/v1/embeddings",
        {"model": MINILM, "input": TEXTS, "task": "retrieval.passage", "late_chunking": False},
    ),
    Recorded(
        "Dify: Cohere",
        "/v2/embed",
        {"model": MINILM, "texts": TEXTS, "input_type": "search_document", "embedding_types": ["float"]},
    ),
    Recorded(
        "RAGFlow: OpenAI-API-Compatible, Xinference, LocalAI",
        "/v1/embeddings",
        {"input": TEXTS, "model": MINILM, "encoding_format": "float"},
    ),
    Recorded(
        "RAGFlow: Jina",
        "/v1/embeddings",
        {
            "model": MINILM,
            "input": [{"text": text} for text in TEXTS],
            "embedding_type": "float",
            "encoding_type": "float",
            "task": "retrieval.passage",
            "truncate": True,
            "return_multivector": False,
        },
    ),
    Recorded(
        "RAGFlow: Cohere",
        "/v1/embed",
        {
            "texts": TEXTS,
            "model": MINILM,
            "input_type": "search_document",
            "embedding_types": ["float"],
            "truncate": "END",
        },
    ),
]

RERANKS = [
    Recorded(
        "Dify: OpenAI-API-compatible, Jina",
        "/v1/rerank",
        {"model": MINILM, "query": QUERY, "documents": TEXTS, "top_n": 3, "return_documents": True},
    ),
    Recorded(
        "Dify: Xinference",
        "/v1/rerank",
        {
            "model": MINILM,
            "query": QUERY,
            "documents": TEXTS,
            "top_n": 3,
            "max_chunks_per_doc": None,
            "return_documents": True,
            "return_len": None,
        },
    ),
    Recorded(
        "Dify: Cohere",
        "/v2/rerank",
        {"model": MINILM, "query": QUERY, "documents": TEXTS, "top_n": 3, "max_tokens_per_doc": None, "priority": 0},
    ),
    Recorded(
        "RAGFlow: Jina, OpenAI-API-Compatible, GPUStack",
        "/v1/rerank",
        {"model": MINILM, "query": QUERY, "documents": TEXTS, "top_n": len(TEXTS)},
    ),
    Recorded(
        "RAGFlow: LocalAI",
        "/rerank",
        {"model": MINILM, "query": QUERY, "documents": TEXTS, "top_n": len(TEXTS)},
    ),
    Recorded(
        "RAGFlow: Xinference",
        "/v1/rerank",
        {"model": MINILM, "query": QUERY, "return_documents": "true", "return_len": "true", "documents": TEXTS},
    ),
    Recorded(
        "RAGFlow: Cohere",
        "/v1/rerank",
        {
            "model": MINILM,
            "query": QUERY,
            "documents": TEXTS,
            "top_n": len(TEXTS),
            "rank_fields": None,
            "return_documents": False,
            "max_chunks_per_doc": None,
        },
    ),
]


@pytest.mark.parametrize("recorded", EMBEDDINGS, ids=lambda recorded: recorded.name)
def test_recorded_embeddings_are_answered_with_the_native_vectors(recorded: Recorded, minilm_server: str) -> None:
    told = recorded.post(minilm_server)
    if "data" in told:
        found = [each["embedding"] for each in told["data"]]
        assert [each["index"] for each in told["data"]] == [0, 1, 2]
        assert told["usage"]["total_tokens"] == told["usage"]["prompt_tokens"] > 0
    else:
        found = told["embeddings"]["float"]
        assert told["meta"]["tokens"]["input_tokens"] > 0
    with SIEClient(minilm_server) as client:
        expected = [result["dense"] for result in client.encode(MINILM, TEXTS)]
    np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.parametrize("recorded", RERANKS, ids=lambda recorded: recorded.name)
def test_recorded_reranks_are_answered_with_the_native_ranking(recorded: Recorded, minilm_server: str) -> None:
    results = recorded.post(minilm_server)["results"]
    with SIEClient(minilm_server) as client:
        scores = client.score(MINILM, QUERY, TEXTS)["scores"]
    expected = [(int(each["item_id"].removeprefix("item-")), each["score"]) for each in scores]
    assert [each["index"] for each in results] == [index for index, _ in expected]
    assert [each["relevance_score"] for each in results] == pytest.approx([score for _, score in expected], abs=1e-3)
    if recorded.body.get("return_documents") in (True, "true"):
        assert [each["document"]["text"] for each in results] == [TEXTS[each["index"]] for each in results]


@pytest.mark.parametrize("task", ["retrieval.query", "retrieval.passage"])
def test_dify_s_and_ragflow_s_check_of_credentials_is_one_short_text(task: str, minilm_server: str) -> None:
    for body in ({"input": "ping", "model": MINILM}, {"input": [{"text": "ping"}], "model": MINILM, "task": task}):
        told = Recorded("ping", "/v1/embeddings", body).post(minilm_server)
        assert len(told["data"][0]["embedding"]) == 384
