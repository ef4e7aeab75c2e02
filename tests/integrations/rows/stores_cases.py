"""Planted documents in the Qdrant, Chroma and LanceDB of each framework: by dense, by sparse, by both, reranked."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import chromadb
import numpy as np
import pytest
from haystack import Document, Pipeline
from haystack_integrations.components.retrievers.chroma import ChromaEmbeddingRetriever
from haystack_integrations.components.retrievers.qdrant import (
    QdrantEmbeddingRetriever,
    QdrantHybridRetriever,
    QdrantSparseEmbeddingRetriever,
)
from haystack_integrations.document_stores.chroma import ChromaDocumentStore
from haystack_integrations.document_stores.qdrant import QdrantDocumentStore
from langchain_chroma import Chroma
from langchain_lancedb import LanceDB
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from llama_index.vector_stores.chroma import ChromaVectorStore
from llama_index.vector_stores.lancedb import LanceDBVectorStore
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import AsyncQdrantClient, QdrantClient
from sie_integrations.haystack import (
    SIEDocumentEmbedder,
    SIERanker,
    SIESparseDocumentEmbedder,
    SIESparseTextEmbedder,
    SIETextEmbedder,
)
from sie_integrations.langchain import SIEEmbeddings, SIEReranker
from sie_integrations.llamaindex import SIEEmbedding, SIERerank, SIESparseEmbedding

URL, DENSE, SPARSE, RERANKER = os.environ["URL"], os.environ["DENSE"], "sie-fake/embedder", "sie-fake/reranker"
PLANTED = json.loads(os.environ["PLANTED"])
DOCUMENTS, QUERIES, ANSWERS = (PLANTED[each] for each in ("documents", "queries", "answers"))


def check(search: Callable[[str], Sequence[str]]) -> None:
    found = [search(query)[0] for query in QUERIES]
    assert np.mean([a == b for a, b in zip(found, ANSWERS, strict=True)]) >= 0.99


@pytest.mark.parametrize("name", ["chroma", "lancedb"])
def test_langchain(name: str, tmp_path: Path) -> None:
    embeddings = SIEEmbeddings(model=DENSE, base_url=URL)
    if name == "chroma":
        store = Chroma.from_texts(DOCUMENTS, embeddings, persist_directory=str(tmp_path))
    else:
        store = LanceDB.from_texts(DOCUMENTS, embeddings, uri=str(tmp_path))
    reranker = SIEReranker(model=RERANKER, base_url=URL, top_n=1)
    check(lambda query: [each.page_content for each in store.similarity_search(query, k=1)])
    check(
        lambda query: [
            each.page_content for each in reranker.compress_documents(store.similarity_search(query, k=10), query)
        ]
    )


def llamaindex_store(name: str, folder: Path) -> BasePydanticVectorStore:
    if name == "chroma":
        return ChromaVectorStore(chroma_collection=chromadb.PersistentClient(str(folder)).create_collection("planted"))
    if name == "lancedb":
        return LanceDBVectorStore(uri=str(folder))
    sparse = SIESparseEmbedding(model_name=SPARSE, base_url=URL)
    return QdrantVectorStore(
        "planted",
        client=QdrantClient(":memory:"),
        aclient=AsyncQdrantClient(":memory:"),
        enable_hybrid=True,
        sparse_doc_fn=sparse.documents,
        sparse_query_fn=sparse.queries,
    )


@pytest.mark.parametrize("name", ["qdrant", "chroma", "lancedb"])
def test_llamaindex(name: str, tmp_path: Path) -> None:
    index = VectorStoreIndex(
        [TextNode(text=each) for each in DOCUMENTS],
        storage_context=StorageContext.from_defaults(vector_store=llamaindex_store(name, tmp_path)),
        embed_model=SIEEmbedding(model_name=DENSE, base_url=URL),
    )
    rerank = SIERerank(model=RERANKER, base_url=URL, top_n=1)
    for mode in ("default", "sparse", "hybrid") if name == "qdrant" else ("default",):
        retriever = index.as_retriever(similarity_top_k=10, sparse_top_k=10, vector_store_query_mode=mode)
        check(lambda query, way=retriever: [each.node.get_content() for each in way.retrieve(query)])
        check(
            lambda query, way=retriever: [
                each.node.get_content() for each in rerank.postprocess_nodes(way.retrieve(query), query_str=query)
            ]
        )


@pytest.mark.parametrize("name", ["dense", "sparse", "both", "chroma"])
def test_haystack(name: str) -> None:
    written = SIEDocumentEmbedder(DENSE, URL).run([Document(content=each) for each in DOCUMENTS])["documents"]
    pipeline, embedders = (
        Pipeline(),
        {"dense": SIETextEmbedder(DENSE, URL), "sparse": SIESparseTextEmbedder(SPARSE, URL)},
    )
    if name == "chroma":
        store = ChromaDocumentStore()  # on disk it writes each document by itself, in 40 ms
        retriever = ChromaEmbeddingRetriever(store, top_k=10)
        inputs = {"dense": "query_embedding"}
    else:
        written = SIESparseDocumentEmbedder(SPARSE, URL).run(written)["documents"]
        store = QdrantDocumentStore(":memory:", embedding_dim=384, use_sparse_embeddings=True)
        kinds = {
            "dense": (QdrantEmbeddingRetriever, {"dense": "query_embedding"}),
            "sparse": (QdrantSparseEmbeddingRetriever, {"sparse": "query_sparse_embedding"}),
            "both": (QdrantHybridRetriever, {"dense": "query_embedding", "sparse": "query_sparse_embedding"}),
        }
        kind, inputs = kinds[name]
        retriever = kind(store, top_k=10)
    store.write_documents(written)
    pipeline.add_component("retriever", retriever)
    pipeline.add_component("ranker", SIERanker(RERANKER, URL, top_k=1))
    pipeline.connect("retriever.documents", "ranker.documents")
    for embedder, into in inputs.items():
        pipeline.add_component(embedder, embedders[embedder])
        pipeline.connect(embedder, f"retriever.{into}")

    def run(query: str) -> dict[str, dict[str, list[Document]]]:
        asked = {embedder: {"text": query} for embedder in inputs}
        return pipeline.run({**asked, "ranker": {"query": query}}, include_outputs_from={"retriever"})

    for step in ("retriever", "ranker"):
        check(lambda query, step=step: [each.content for each in run(query)[step]["documents"]])
