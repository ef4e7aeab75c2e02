"""Embed and rank with Haystack's components for text-embeddings-inference."""

from __future__ import annotations

import json
import os
import sys

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

from haystack import Document
from haystack_integrations.components.embedders.huggingface_api import (
    HuggingFaceAPIDocumentEmbedder,
    HuggingFaceAPITextEmbedder,
    HuggingFaceTEISparseTextEmbedder,
)
from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker
from haystack_integrations.components.rankers.huggingface_api.ranker import TruncationDirection

TEI = "text_embeddings_inference"


def ranked(ranker: HuggingFaceTEIRanker, **arguments: object) -> list | dict:
    documents = [Document(content=text) for text in ask["documents"]]
    try:
        told = ranker.run(query=ask["query"], documents=documents, **arguments)["documents"]
    except RuntimeError as error:
        return {"raised": str(error)}
    return [[each.content, each.score] for each in told]


ask = json.load(sys.stdin)
documents = [Document(content=text) for text in ask["texts"]]
url = {"url": ask["embedder"]}
text = HuggingFaceAPITextEmbedder(api_type=TEI, api_params=url, normalize=True)
embedded = HuggingFaceAPIDocumentEmbedder(api_type=TEI, api_params=url, progress_bar=False).run(documents)
sparse = HuggingFaceTEISparseTextEmbedder(api_base_url=ask["sparse"]).run(ask["texts"][0])["sparse_embedding"]
ranker = HuggingFaceTEIRanker(url=ask["ranker"], top_k=2, max_retries=1)
json.dump(
    {
        "documents": [each.embedding for each in embedded["documents"]],
        "text": text.run(ask["texts"][0])["embedding"],
        "sparse": {"indices": sparse.indices, "values": sparse.values},
        "ranked": ranked(ranker),
        "raw": ranked(HuggingFaceTEIRanker(url=ask["ranker"], raw_scores=True)),
        "cut": ranked(ranker, truncation_direction=TruncationDirection.LEFT),
    },
    sys.stdout,
)
