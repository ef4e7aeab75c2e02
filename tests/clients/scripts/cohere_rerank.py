"""Rerank with Cohere's own client; answers what it understood, or what it raised."""

from __future__ import annotations

import json
import sys

import cohere
from cohere.core.api_error import ApiError


def call(client: cohere.ClientV2, arguments: dict) -> dict:
    try:
        more = {"max_retries": 0, "additional_body_parameters": arguments.pop("more", {})}
        told = client.rerank(**arguments, request_options=more)
    except ApiError as error:
        return {"raised": type(error).__name__, "status": error.status_code, "body": error.body}
    return {
        "id": told.id,
        "results": [[each.index, each.relevance_score] for each in told.results],
        "input_tokens": told.meta.tokens.input_tokens,
        "version": told.meta.api_version.version,
    }


ask = json.load(sys.stdin)
client = cohere.ClientV2(api_key="none", base_url=ask["url"])
json.dump([call(client, arguments) for arguments in ask["calls"]], sys.stdout)
