"""Embed, rank and extract by the published integrations, as their pages say; each answers, or says what it raised."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the network for a price list

warnings.simplefilter("ignore")
ask = json.load(sys.stdin)
URL, EMBEDDER, RERANKER, EXTRACTOR = (ask[each] for each in ("url", "model", "reranker", "extractor"))
TEXTS, QUERY, PERSON = ask["documents"], ask["query"], ask["person"]


def langchain() -> dict[str, Any]:
    from langchain_core.documents import Document
    from sie_langchain import SIEEmbeddings, SIEExtractor, SIEReranker, SIESparseEncoder

    embeddings = SIEEmbeddings(base_url=URL, model=EMBEDDER)
    ranked = SIEReranker(base_url=URL, model=RERANKER, top_k=1).compress_documents(
        [Document(page_content=text) for text in TEXTS], QUERY
    )
    return {
        "documents": embeddings.embed_documents(TEXTS),
        "query": embeddings.embed_query(QUERY),
        "sparse": [each["indices"] for each in SIESparseEncoder(base_url=URL, model=EMBEDDER).encode_documents(TEXTS)],
        "ranked": [each.page_content for each in ranked],
        "extracted": str(SIEExtractor(base_url=URL, model=EXTRACTOR, labels=["person"]).invoke(PERSON)),
    }


def llamaindex() -> dict[str, Any]:
    from llama_index.core.schema import NodeWithScore, TextNode
    from sie_llamaindex import SIEEmbedding, SIENodePostprocessor, SIESparseEmbeddingFunction

    embedding = SIEEmbedding(base_url=URL, model_name=EMBEDDER)
    ranked = SIENodePostprocessor(base_url=URL, model=RERANKER, top_n=1).postprocess_nodes(
        [NodeWithScore(node=TextNode(text=text)) for text in TEXTS], query_str=QUERY
    )
    return {
        "documents": embedding.get_text_embedding_batch(TEXTS),
        "query": embedding.get_query_embedding(QUERY),
        "sparse": SIESparseEmbeddingFunction(base_url=URL, model_name=EMBEDDER).encode_documents(TEXTS)[0],
        "ranked": [each.node.get_content() for each in ranked],
    }


def haystack() -> dict[str, Any]:
    from haystack import Document
    from sie_haystack import SIEDocumentEmbedder, SIEExtractor, SIERanker, SIESparseDocumentEmbedder, SIETextEmbedder

    documents = [Document(content=text) for text in TEXTS]
    embedded = SIEDocumentEmbedder(base_url=URL, model=EMBEDDER).run(documents=documents)["documents"]
    sparse = SIESparseDocumentEmbedder(base_url=URL, model=EMBEDDER).run(documents=documents)["documents"]
    ranked = SIERanker(base_url=URL, model=RERANKER).run(query=QUERY, documents=documents, top_k=1)["documents"]
    extractor = SIEExtractor(base_url=URL, model=EXTRACTOR, labels=["person"])
    return {
        "documents": [each.embedding for each in embedded],
        "query": SIETextEmbedder(base_url=URL, model=EMBEDDER).run(text=QUERY)["embedding"],
        "sparse": [each.meta["_sparse_embedding"]["indices"] for each in sparse],
        "ranked": [each.content for each in ranked],
        "extracted": str(extractor.run(text=PERSON)["entities"]),
    }


def chroma() -> dict[str, Any]:
    import chromadb
    from sie_chroma import SIEEmbeddingFunction

    function = SIEEmbeddingFunction(base_url=URL, model=EMBEDDER)
    collection = chromadb.EphemeralClient().create_collection("texts", embedding_function=function)
    collection.add(documents=TEXTS, ids=[str(place) for place in range(len(TEXTS))])
    return {
        "documents": [list(map(float, each)) for each in function(TEXTS)],
        "query": list(map(float, function.embed_query([QUERY])[0])),
        "found": collection.query(query_texts=[TEXTS[1]], n_results=1)["documents"][0],
    }


def lancedb() -> dict[str, Any]:
    from sie_lancedb import SIEEmbeddingFunction

    function = SIEEmbeddingFunction.create(base_url=URL, model=EMBEDDER)
    return {
        "documents": [list(map(float, each)) for each in function.compute_source_embeddings(TEXTS)],
        "query": list(map(float, function.compute_query_embeddings(QUERY)[0])),
        "dims": function.ndims(),
    }


def vectorizer(kind: type[Any], named: type[Any]) -> dict[str, Any]:
    several = named(base_url=URL, model=EMBEDDER, output_types=["dense", "sparse"]).embed_documents(TEXTS)
    own = kind(base_url=URL, model=EMBEDDER)
    return {
        "documents": own.embed_documents(TEXTS),
        "query": own.embed_query(QUERY),
        "sparse": [each["sparse"]["indices"] for each in several],
    }


def qdrant() -> dict[str, Any]:
    from sie_qdrant import SIENamedVectorizer, SIEVectorizer

    return vectorizer(SIEVectorizer, SIENamedVectorizer)


def weaviate() -> dict[str, Any]:
    from sie_weaviate import SIEVectorizer

    own = SIEVectorizer(base_url=URL, model=EMBEDDER)
    return {"documents": own.embed_documents(TEXTS), "query": own.embed_query(QUERY)}


def dspy() -> dict[str, Any]:
    from sie_dspy import SIEEmbedder, SIEExtractor, SIEReranker

    embedder = SIEEmbedder(base_url=URL, model=EMBEDDER)
    ranked = SIEReranker(base_url=URL, model=RERANKER)(query=QUERY, passages=TEXTS, k=1)
    return {
        "documents": [list(map(float, each)) for each in embedder(TEXTS)],
        "query": list(map(float, embedder(QUERY))),
        "ranked": ranked.passages,
        "extracted": str(SIEExtractor(base_url=URL, model=EXTRACTOR, labels=["person"])(text=PERSON).entities),
    }


def attempt(package: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return package()
    except Exception as error:  # without a traceback: it would show lines of code that no one here reads
        return {"raised": f"{type(error).__name__}: {error}"}


packages = (langchain, llamaindex, haystack, chroma, lancedb, qdrant, weaviate, dspy)
json.dump({package.__name__: attempt(package) for package in packages}, sys.stdout, default=lambda each: each.tolist())
