"""Embed with both of Cohere's own clients; answers what they understood, or what they raised."""

from __future__ import annotations

import json
import sys

import cohere
from cohere.core.api_error import ApiError

TYPES = ("float", "base64", "int8", "uint8", "binary", "ubinary")


def embed(clients: dict, version: str, arguments: dict) -> dict:
    try:
        told = clients[version].embed(**arguments)
    except ApiError as error:
        return {"raised": type(error).__name__, "status": error.status_code, "body": error.body}
    answer = {"response_type": told.response_type, "version": told.meta.api_version.version, "texts": told.texts}
    if isinstance(told.embeddings, list):
        return answer | {"embeddings": told.embeddings}
    found = {name: getattr(told.embeddings, "float_" if name == "float" else name) for name in TYPES}
    return answer | {"embeddings": {name: vectors for name, vectors in found.items() if vectors is not None}}


ask = json.load(sys.stdin)
options = {"api_key": "none", "base_url": ask["url"]}
clients = {"1": cohere.Client(**options), "2": cohere.ClientV2(**options)}
json.dump([embed(clients, *call) for call in ask["calls"]], sys.stdout)
