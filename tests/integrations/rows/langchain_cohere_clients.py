"""Embed and rerank with LangChain's package for Cohere."""

from __future__ import annotations

import json
import sys

from langchain_cohere import CohereEmbeddings, CohereRerank

ask = json.load(sys.stdin)
embeddings = CohereEmbeddings(model=ask["model"], base_url=ask["url"], cohere_api_key="none")
reranker = CohereRerank(model=ask["reranker"], base_url=ask["url"], cohere_api_key="none", top_n=2)
json.dump(
    {
        "documents": embeddings.embed_documents(ask["documents"]),
        "query": embeddings.embed_query(ask["query"]),
        "ranked": [
            [each["index"], each["relevance_score"]] for each in reranker.rerank(ask["documents"], ask["query"])
        ],
    },
    sys.stdout,
)
