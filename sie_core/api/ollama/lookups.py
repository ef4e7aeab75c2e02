"""The routes of Ollama that run no model: `/api/tags`, `/api/version`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from sie_core import __version__
from sie_core.api.body.negotiation import JSON_TYPE
from sie_core.api.context import Api
from sie_core.api.ollama.schema import OllamaModels, OllamaVersion
from sie_core.api.openapi.descriptions import lookup
from sie_core.contracts import ModelInfo


async def tags(api: Api, request: Request) -> Response:
    """List the models that need nothing fetched."""
    started = datetime.fromtimestamp(api.started_at, UTC).isoformat()
    models = [_model(each, started) for each in api.backend.models() if each.available]
    return Response(orjson.dumps({"models": models}), media_type=JSON_TYPE)


async def version(api: Api, request: Request) -> Response:
    """Tell the version of this server."""
    return Response(orjson.dumps({"version": __version__}), media_type=JSON_TYPE)


ENDPOINTS: Final = (
    lookup("/api/tags", tags, OllamaModels, tag="ollama", dialect="ollama"),
    lookup("/api/version", version, OllamaVersion, tag="ollama", dialect="ollama"),
)


def _model(model: ModelInfo, started: str) -> dict[str, Any]:
    return {
        "name": model.id,
        "model": model.id,
        "modified_at": started,
        "size": model.memory_bytes or 0,
        "digest": model.revision or "",
        "details": {"format": "safetensors", "family": "", "families": None, "quantization_level": model.precision},
    }
