"""Check replies of a server by the types of Cohere's and OpenAI's own clients, which leave the check out themselves."""

from __future__ import annotations

import json
import sys

import httpx
from cohere import EmbedByTypeResponse, EmbeddingsFloatsEmbedResponse, V2RerankResponse
from openai.types import CreateEmbeddingResponse
from pydantic import ValidationError

SCHEMAS = {
    "openai": CreateEmbeddingResponse,
    "cohere plain": EmbeddingsFloatsEmbedResponse,
    "cohere types": EmbedByTypeResponse,
    "cohere rerank": V2RerankResponse,
}


def problem(url: str, path: str, schema: str, body: dict) -> str | None:
    """Say what is wrong with a reply; None where nothing is."""
    reply = httpx.post(url + path, json=body, timeout=60)
    try:
        SCHEMAS[schema].model_validate_json(reply.content, strict=True)
    except ValidationError as error:
        return f"{path}: {reply.text[:200]}: {error}"
    return None


ask = json.load(sys.stdin)
json.dump([problem(ask["url"], *call) for call in ask["calls"]], sys.stdout)
