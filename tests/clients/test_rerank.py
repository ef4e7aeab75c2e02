"""Cohere's own client, and a client that speaks Jina's API, rerank against a live server."""

from __future__ import annotations

import httpx
import pytest
from sie_sdk import SIEClient

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
FAKE = "sie-fake/reranker"
QUERY = "Which animal is a fox?"
DOCUMENTS = ["A house in the snow", "The fox is a small red animal", "Foxes hunt at night", "短い文章 🚆"]

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]


def native(url: str, model: str, query: str, documents: list[str]) -> list[list[float]]:
    with SIEClient(url) as client:
        scores = client.score(model, query, documents)["scores"]
    return [[int(each["item_id"].removeprefix("item-")), each["score"]] for each in scores]


def assert_same(results: list[list[float]], expected: list[list[float]]) -> None:
    assert [index for index, _ in results] == [index for index, _ in expected]
    assert [score for _, score in results] == pytest.approx([score for _, score in expected], abs=1e-3)


def test_the_cohere_client_reranks_with_embeddings(other_apis, minilm_server):
    calls = [{"model": MINILM, "query": QUERY, "documents": DOCUMENTS, **more} for more in ({}, {"top_n": 2})]
    every, best = other_apis.run("cohere_rerank.py", url=minilm_server, calls=calls)
    expected = native(minilm_server, MINILM, QUERY, DOCUMENTS)
    assert expected[0][0] == 1
    assert_same(every["results"], expected)
    assert_same(best["results"], expected[:2])
    assert (every["version"], every["input_tokens"] > 0) == ("2", True)
    assert every["id"]


def test_the_cohere_client_cuts_documents_and_reads_refusals(other_apis, served_fakes):
    base = {"model": FAKE, "query": "red fox", "documents": ["a red fox", "fox"]}
    changes = [
        {"max_tokens_per_doc": 2, "priority": 3}, {"model": "no/such"}, {"documents": []}, {"top_n": 0}
    ]  # fmt: skip
    cut, *refused = other_apis.run("cohere_rerank.py", url=served_fakes, calls=[base | each for each in changes])
    assert cut["results"] == [[0, 0.5], [1, 0.5]]
    assert [each["raised"] for each in refused] == ["NotFoundError"] + ["BadRequestError"] * 2
    for answer, says in zip(refused, ("no/such", "documents", "top_n"), strict=True):
        assert says in answer["body"]["message"]


def test_the_cohere_client_gives_an_instruction(other_apis, served_fakes):
    asked = {"model": "sie-fake/embedder", "query": QUERY, "documents": DOCUMENTS}
    calls = [asked, asked | {"more": {"instruction": "hunt night"}}]
    plain, told = other_apis.run("cohere_rerank.py", url=served_fakes, calls=calls)
    with SIEClient(served_fakes) as client:
        scores = client.score("sie-fake/embedder", QUERY, DOCUMENTS, instruction="hunt night")["scores"]
    assert_same(told["results"], [[int(each["item_id"].removeprefix("item-")), each["score"]] for each in scores])
    assert plain["results"] != told["results"]


def test_a_client_of_jina_s_api_reranks(minilm_server):
    body = {"model": MINILM, "query": QUERY, "documents": DOCUMENTS, "top_n": 3, "return_documents": True}
    headers = {"Authorization": "Bearer jina_none", "Accept": "application/json", "Accept-Encoding": "identity"}
    reply = httpx.post(f"{minilm_server}/v1/rerank", json=body, headers=headers, timeout=60)
    told = reply.raise_for_status().json()
    found = [[each["index"], each["relevance_score"]] for each in told["results"]]
    assert_same(found, native(minilm_server, MINILM, QUERY, DOCUMENTS)[:3])
    assert [each["document"]["text"] for each in told["results"]] == [DOCUMENTS[index] for index, _ in found]
    assert told["usage"]["total_tokens"] > 0
