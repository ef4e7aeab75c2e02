"""Embed with DSPy, whose embedder speaks OpenAI's API by litellm."""

from __future__ import annotations

import json
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the network for a price list

import dspy

ask = json.load(sys.stdin)
embedder = dspy.Embedder(f"openai/{ask['model']}", api_base=f"{ask['url']}/v1", api_key="none", caching=False)
queries = dspy.Embedder(
    f"openai/{ask['model']}",
    api_base=f"{ask['url']}/v1",
    api_key="none",
    caching=False,
    extra_body={"input_type": "query"},
)
retriever = dspy.retrievers.Embeddings(corpus=ask["documents"], embedder=embedder, k=1)
json.dump(
    {
        "documents": embedder(ask["documents"]).tolist(),
        "query": queries(ask["query"]).tolist(),
        "found": retriever(ask["documents"][1]).passages,
    },
    sys.stdout,
)
