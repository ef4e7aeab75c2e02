"""Haystack: a pipeline with every component against a live server, and that it outlives serialisation."""

from __future__ import annotations

import asyncio
import json
import os

import numpy as np
import pytest
from haystack import Document, Pipeline
from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.utils import Secret
from sie_integrations.haystack import (
    SIEDocumentEmbedder,
    SIEExtractor,
    SIERanker,
    SIESparseDocumentEmbedder,
    SIESparseTextEmbedder,
    SIETextEmbedder,
)
from sie_sdk import SIEClient

URL, EMBEDDER, RERANKER, EXTRACTOR = os.environ["URL"], "sie-fake/embedder", "sie-fake/reranker", "sie-fake/extractor"
EMBEDDERS = (SIETextEmbedder, SIEDocumentEmbedder, SIESparseTextEmbedder, SIESparseDocumentEmbedder)


def test_vectors_are_those_of_the_sdk_with_the_prompts_of_queries_and_documents() -> None:
    with SIEClient(URL) as client:
        query, text = (
            client.encode(EMBEDDER, "one fox", input_type=kind, output_types=["dense", "sparse"])
            for kind in ("query", "document")
        )
    document = Document(content="one fox", meta={"a": 1})
    dense, documents, sparse, sparsely = (kind(EMBEDDER, URL) for kind in EMBEDDERS)
    np.testing.assert_array_equal(np.float32(dense.run("one fox")["embedding"]), query["dense"])
    (embedded,) = documents.run([document])["documents"]
    np.testing.assert_array_equal(np.float32(embedded.embedding), text["dense"])
    assert (embedded.meta, document.embedding) == ({"a": 1}, None)
    assert sparse.run("one fox")["sparse_embedding"].indices == query["sparse"]["indices"].tolist()
    (embedded,) = sparsely.run([document])["documents"]
    assert embedded.sparse_embedding.values == pytest.approx(text["sparse"]["values"].tolist())
    assert asyncio.run(sparsely.run_async([document]))["documents"] == [embedded]
    assert asyncio.run(dense.run_async("one fox")) == dense.run("one fox")


def test_documents_are_ranked_and_extracted_from() -> None:
    documents = [Document(content="a house"), Document(content="a red fox")]
    ranker = SIERanker(RERANKER, URL, top_k=1)
    (best,) = ranker.run("red fox", documents)["documents"]
    assert (best.content, best.score) == ("a red fox", 1.0)
    assert len(ranker.run("red fox", documents, top_k=2)["documents"]) == 2
    extractor = SIEExtractor(EXTRACTOR, URL, settings={"labels": ["person"]})
    (found,) = extractor.run([Document(content="person=Ada here", meta={"a": 1})])["documents"]
    assert (found.meta["a"], found.meta["entities"][0]["text"]) == (1, "Ada")
    with pytest.raises(ValueError, match="has no content"):
        ranker.run("red fox", [Document(content=None)])


@pytest.mark.parametrize("kind", [*EMBEDDERS, SIERanker, SIEExtractor])
def test_a_component_outlives_serialisation_without_its_key(kind, monkeypatch) -> None:
    monkeypatch.setenv("KEY", "secret-key")
    component = kind(EMBEDDER, URL, Secret.from_env_var("KEY"), {"options": {"a": 1}})
    told = component.to_dict()
    written = json.dumps(told)
    assert "secret-key" not in written
    assert kind.from_dict(json.loads(written)).to_dict() == told
    with pytest.raises(ValueError, match="token"):
        kind(EMBEDDER, URL, Secret.from_token("secret-key")).to_dict()


def test_planted_documents_are_found_by_a_pipeline_that_was_written_and_read() -> None:
    planted = json.loads(os.environ["PLANTED"])
    store = InMemoryDocumentStore()
    documents = [Document(content=each) for each in planted["documents"]]
    store.write_documents(SIEDocumentEmbedder(os.environ["DENSE"], URL).run(documents)["documents"])
    pipeline = Pipeline()
    pipeline.add_component("query", SIETextEmbedder(os.environ["DENSE"], URL))
    pipeline.add_component("retriever", InMemoryEmbeddingRetriever(store, top_k=10))
    pipeline.add_component("ranker", SIERanker(RERANKER, URL, top_k=1))
    pipeline.connect("query.embedding", "retriever.query_embedding")
    pipeline.connect("retriever.documents", "ranker.documents")
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["sie_integrations.haystack"])
    assert again.to_dict() == pipeline.to_dict()
    ranked = [
        pipeline.run({"query": {"text": query}, "ranker": {"query": query}})["ranker"]["documents"][0].content
        for query in planted["queries"]
    ]
    assert np.mean([a == b for a, b in zip(ranked, planted["answers"], strict=True)]) >= 0.99
