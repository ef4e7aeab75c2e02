"""LlamaIndex: what its interfaces do with a live server, and that components outlive serialisation."""

from __future__ import annotations

import asyncio
import json
import os
import pickle

import numpy as np
import pytest
from llama_index.core import Document, VectorStoreIndex
from llama_index.core.schema import NodeWithScore, TextNode
from sie_integrations.llamaindex import SIEEmbedding, SIERerank, SIESparseEmbedding
from sie_sdk import SIEClient, sparse_embedding_dict

URL, EMBEDDER, RERANKER = os.environ["URL"], "sie-fake/embedder", "sie-fake/reranker"
NODES = [NodeWithScore(node=TextNode(text=text), score=0.0) for text in ("a house", "a red fox")]


def test_vectors_are_those_of_the_sdk_with_the_prompts_of_queries_and_texts() -> None:
    dense, sparse = (kind(model_name=EMBEDDER, base_url=URL) for kind in (SIEEmbedding, SIESparseEmbedding))
    with SIEClient(URL) as client:
        query, text = (
            client.encode(EMBEDDER, "one fox", input_type=kind, output_types=["dense", "sparse"])
            for kind in ("query", "document")
        )
    assert not np.array_equal(query["dense"], text["dense"])
    np.testing.assert_array_equal(np.float32(dense.get_query_embedding("one fox")), query["dense"])
    np.testing.assert_array_equal(np.float32(dense.get_text_embedding_batch(["one fox"])[0]), text["dense"])
    aside = asyncio.run(dense.aget_text_embedding_batch(["one fox"] * 3))
    np.testing.assert_array_equal(np.float32(aside), [text["dense"]] * 3)
    assert sparse.get_query_embedding("one fox") == sparse_embedding_dict(query)
    assert sparse.get_text_embedding("one fox") == sparse_embedding_dict(text)
    indices, values = sparse.documents(["one fox"])
    assert dict(zip(indices[0], values[0], strict=True)) == sparse_embedding_dict(text)
    indices, values = sparse.queries(["one fox"])
    assert dict(zip(indices[0], values[0], strict=True)) == sparse_embedding_dict(query)


def test_nodes_are_ranked() -> None:
    rerank = SIERerank(model=RERANKER, base_url=URL, top_n=1)
    (best,) = rerank.postprocess_nodes(NODES, query_str="red fox")
    assert (best.node.get_content(), best.score) == ("a red fox", 1.0)
    assert asyncio.run(rerank.apostprocess_nodes(NODES, query_str="red fox")) == [best]
    with pytest.raises(ValueError, match="pass `query_str`"):
        rerank.postprocess_nodes(NODES)


def test_a_component_outlives_serialisation_without_its_key() -> None:
    embedding = SIEEmbedding(model_name=EMBEDDER, base_url=URL, api_key="secret-key", settings={"dimensions": 8})
    vector = embedding.get_text_embedding("a")
    told = embedding.to_json()
    assert "secret-key" not in told + repr(embedding)
    assert SIEEmbedding.from_json(told).get_text_embedding("a") == vector
    assert pickle.loads(pickle.dumps(embedding)).get_text_embedding("a") == vector
    rerank = SIERerank(model=RERANKER, base_url=URL, api_key="secret-key", top_n=1)
    assert "secret-key" not in rerank.to_json() + repr(rerank)
    assert SIERerank.from_json(rerank.to_json()).top_n == 1


def test_planted_documents_are_found() -> None:
    planted = json.loads(os.environ["PLANTED"])
    embedding = SIEEmbedding(model_name=os.environ["DENSE"], base_url=URL)
    index = VectorStoreIndex.from_documents(
        [Document(text=each) for each in planted["documents"]], embed_model=embedding
    )
    rerank = SIERerank(model=RERANKER, base_url=URL, top_n=1)
    retriever, found, ranked = index.as_retriever(similarity_top_k=10), [], []
    for query in planted["queries"]:
        nodes = retriever.retrieve(query)
        found.append(nodes[0].node.get_content())
        ranked.append(rerank.postprocess_nodes(nodes, query_str=query)[0].node.get_content())
    for each in (found, ranked):
        assert np.mean([a == b for a, b in zip(each, planted["answers"], strict=True)]) >= 0.99
