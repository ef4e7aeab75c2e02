"""LangChain's JavaScript client for Cohere, unchanged, reranks against a live server."""

from __future__ import annotations

import pytest
from sie_sdk import SIEClient

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
FAKE = "sie-fake/reranker"
QUERY = "Which animal is a fox?"
DOCUMENTS = ["A house in the snow", "The fox is a small red animal", "", "Foxes hunt at night"]

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]


def test_langchain_js_reranks(langchain_js, minilm_server):
    base = {"query": QUERY, "documents": DOCUMENTS, "model": MINILM}
    calls = [base | {"topN": 4}, base | {"topN": 1, "maxChunksPerDoc": 10}, base | {"model": "no/such"}]
    every, best, refused = langchain_js.run("cohere_rerank.mjs", url=minilm_server, calls=calls)
    with SIEClient(minilm_server) as client:
        scores = client.score(MINILM, QUERY, [text for text in DOCUMENTS if text])["scores"]
    places = {"item-0": 0, "item-1": 1, "item-2": 3}
    expected = [[places[each["item_id"]], pytest.approx(each["score"], abs=1e-3)] for each in scores]
    assert every["results"] == [*expected, [2, min(0, scores[-1]["score"])]]
    assert every["documents"] == [DOCUMENTS[index] for index, _ in every["results"]]
    assert best["results"] == expected[:1]
    assert refused["status"] == 404
    assert "no/such" in refused["body"]["error"]["message"]


def test_langchain_js_reads_a_reranker_s_scores(langchain_js, fake_server):
    call = {"query": "red fox", "documents": ["fox", "a red fox"], "model": FAKE}
    (answer,) = langchain_js.run("cohere_rerank.mjs", url=fake_server, calls=[call])
    assert answer == {"results": [[1, 1.0], [0, 0.5]], "documents": ["a red fox", "fox"]}
