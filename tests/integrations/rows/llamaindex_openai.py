"""Embed with LlamaIndex's package for OpenAI."""

from __future__ import annotations

import json
import sys

from llama_index.embeddings.openai import OpenAIEmbedding

ask = json.load(sys.stdin)
embedding = OpenAIEmbedding(model_name=ask["model"], api_base=f"{ask['url']}/v1", api_key="none")
json.dump(
    {
        "documents": embedding.get_text_embedding_batch(ask["documents"]),
        "query": embedding.get_query_embedding(ask["query"]),
    },
    sys.stdout,
)
