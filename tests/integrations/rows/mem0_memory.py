"""Keep memories with mem0 in a local Qdrant, its embedder being OpenAI's; no language model is asked."""

from __future__ import annotations

import json
import os
import sys
import tempfile

os.environ["MEM0_TELEMETRY"] = "False"
os.environ["MEM0_DIR"] = tempfile.mkdtemp()

from mem0 import Memory

ask = json.load(sys.stdin)
embedder = {"model": ask["model"], "openai_base_url": f"{ask['url']}/v1", "api_key": "none"}
store = {"path": tempfile.mkdtemp(), "embedding_model_dims": ask["dims"], "collection_name": "memories"}
memory = Memory.from_config(
    {
        "embedder": {"provider": "openai", "config": embedder},
        "vector_store": {"provider": "qdrant", "config": store},
        "llm": {"provider": "openai", "config": {"api_key": "none"}},
    }
)
for text in ask["documents"]:
    memory.add(text, user_id="ada", infer=False)
found = memory.search(ask["documents"][1], filters={"user_id": "ada"}, top_k=1)["results"]
json.dump(
    {
        "documents": [memory.embedding_model.embed(text, "add") for text in ask["documents"]],
        "query": memory.embedding_model.embed(ask["query"], "search"),
        "found": [each["memory"] for each in found],
    },
    sys.stdout,
)
