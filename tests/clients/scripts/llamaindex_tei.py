"""Embed with LlamaIndex's class for text-embeddings-inference."""

from __future__ import annotations

import asyncio
import json
import sys

from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference

ask = json.load(sys.stdin)
root = TextEmbeddingsInference(model_name="any", base_url=ask["url"])
other = TextEmbeddingsInference(model_name="any", base_url=ask["other"], query_instruction="query:")
json.dump(
    {
        "documents": root.get_text_embedding_batch(ask["texts"]),
        "document": root.get_text_embedding(ask["texts"][0]),
        "awaited": asyncio.run(root.aget_text_embedding_batch(ask["texts"])),
        "other": other.get_text_embedding(ask["texts"][0]),
        "query": other.get_query_embedding(ask["texts"][0]),
    },
    sys.stdout,
)
