"""Index and search with txtai, which speaks OpenAI's API by litellm."""

from __future__ import annotations

import json
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the network for a price list

from txtai import Embeddings

ask = json.load(sys.stdin)
embeddings = Embeddings(
    path=f"openai/{ask['model']}",
    method="litellm",
    vectors={"api_base": f"{ask['url']}/v1", "api_key": "none"},
    content=True,
)
embeddings.index(ask["documents"])
json.dump(
    {
        "documents": [vector.tolist() for vector in embeddings.batchtransform(ask["documents"], category="data")],
        "query": embeddings.transform(ask["query"]).tolist(),
        "found": [each["text"] for each in embeddings.search(ask["documents"][1], 1)],
    },
    sys.stdout,
)
