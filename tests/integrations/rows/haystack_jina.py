"""Embed and rank with Haystack's components for Jina."""

from __future__ import annotations

import json
import os
import sys

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

from haystack import Document
from haystack.utils import Secret
from haystack_integrations.components.embedders.jina import JinaDocumentEmbedder, JinaTextEmbedder
from haystack_integrations.components.rankers.jina import JinaRanker

ask = json.load(sys.stdin)
key = Secret.from_token("none")
documents = [Document(content=text) for text in ask["documents"]]
base = {"api_key": key, "model": ask["model"], "base_url": f"{ask['url']}/v1/embeddings"}
embedded = JinaDocumentEmbedder(**base, task="retrieval.passage", progress_bar=False).run(documents)["documents"]
ranker = JinaRanker(model=ask["reranker"], api_key=key, top_k=2, base_url=f"{ask['url']}/v1/rerank")
ranked = ranker.run(ask["query"], documents)["documents"]
json.dump(
    {
        "documents": [each.embedding for each in embedded],
        "query": JinaTextEmbedder(**base, task="retrieval.query").run(ask["query"])["embedding"],
        "ranked": [[ask["documents"].index(each.content), each.score] for each in ranked],
    },
    sys.stdout,
)
