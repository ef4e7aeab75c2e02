"""LangChain's own conformance tests, and what its interfaces do with a live server."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_qdrant import QdrantVectorStore, RetrievalMode
from langchain_tests.integration_tests import EmbeddingsIntegrationTests
from langchain_tests.unit_tests import EmbeddingsUnitTests
from sie_integrations.calls import Calls
from sie_integrations.langchain import SIEEmbeddings, SIEExtractor, SIEReranker
from sie_integrations.langchain_qdrant import SIESparseEmbeddings
from sie_sdk import SIEClient

URL, EMBEDDER, RERANKER, EXTRACTOR = os.environ["URL"], "sie-fake/embedder", "sie-fake/reranker", "sie-fake/extractor"
DOCUMENTS = [Document("a house", metadata={"place": 0}), Document("a red fox", metadata={"place": 1})]


class Served:
    """What both of LangChain's suites ask for."""

    @property
    def embeddings_class(self) -> type[SIEEmbeddings]:
        return SIEEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        return {"model": EMBEDDER, "base_url": URL}


class TestUnit(Served, EmbeddingsUnitTests): ...


class TestIntegration(Served, EmbeddingsIntegrationTests): ...


def test_vectors_are_those_of_the_sdk_with_the_prompts_of_queries_and_documents() -> None:
    embeddings = SIEEmbeddings(model=EMBEDDER, base_url=URL, settings={"dimensions": 16})
    with SIEClient(URL) as client:
        query, document = (
            client.encode(EMBEDDER, "one fox", input_type=kind, dimensions=16)["dense"]
            for kind in ("query", "document")
        )
    assert not np.array_equal(query, document)
    np.testing.assert_array_equal(np.float32(embeddings.embed_query("one fox")), query)
    np.testing.assert_array_equal(np.float32(embeddings.embed_documents(["one fox"])[0]), document)


def test_documents_are_ranked_and_keep_their_metadata() -> None:
    reranker = SIEReranker(model=RERANKER, base_url=URL, top_n=1)
    (best,) = reranker.compress_documents(DOCUMENTS, "red fox")
    assert (best.page_content, best.metadata) == ("a red fox", {"place": 1, "relevance_score": 1.0})
    assert "relevance_score" not in DOCUMENTS[1].metadata
    assert asyncio.run(reranker.acompress_documents(DOCUMENTS, "red fox")) == [best]
    assert reranker.compress_documents([], "red fox") == []


def test_an_extractor_is_a_step_of_a_chain() -> None:
    extractor = SIEExtractor(model=EXTRACTOR, base_url=URL, settings={"labels": ["person"]})
    chain = (lambda name: f"person={name} here") | extractor | (lambda found: found["entities"][0]["text"])
    assert chain.invoke("Ada") == "Ada"
    assert chain.batch(["Ada", "Bo"]) == asyncio.run(chain.abatch(["Ada", "Bo"])) == ["Ada", "Bo"]


def test_a_key_is_not_shown() -> None:
    embeddings = SIEEmbeddings(model=EMBEDDER, base_url=URL, api_key="secret-key")
    embeddings.embed_query("a")
    assert "secret-key" not in repr(embeddings) + embeddings.model_dump_json() + repr(embeddings._calls)


def test_planted_documents_are_found() -> None:
    planted = json.loads(os.environ["PLANTED"])
    dense = SIEEmbeddings(model=os.environ["DENSE"], base_url=URL)
    sparse = SIESparseEmbeddings(Calls(EMBEDDER, URL))
    for mode in RetrievalMode:
        kept = QdrantVectorStore.from_texts(
            planted["documents"], dense, sparse_embedding=sparse, retrieval_mode=mode, location=":memory:"
        )
        reranker = SIEReranker(model=RERANKER, base_url=URL, top_n=1)
        found, ranked = [], []
        for query in planted["queries"]:
            listed = kept.similarity_search(query, k=10)
            found.append(listed[0].page_content)
            ranked.append(reranker.compress_documents(listed, query)[0].page_content)
        for each in (found, ranked):
            assert np.mean([a == b for a, b in zip(each, planted["answers"], strict=True)]) >= 0.99, mode
