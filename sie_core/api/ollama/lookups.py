"""The routes of Ollama that run no model: `/api/tags`, `/api/version`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
from fastapi import APIRouter
from starlette.responses import Response

from sie_core import __version__
from sie_core.api.body.negotiation import JSON_TYPE
from sie_core.api.context import Api
from sie_core.api.ollama.schema import OllamaModels, OllamaVersion
from sie_core.api.openapi.descriptions import lookup
from sie_core.contracts import ModelInfo


def router(api: Api) -> APIRouter:
    """Make the routes."""
    routes = APIRouter(tags=["ollama"])
    started = datetime.fromtimestamp(api.started_at, UTC).isoformat()

    @routes.get("/api/tags", **lookup(OllamaModels, errors="ollama"))
    async def tags() -> Response:
        """List the models that need nothing fetched."""
        models = [_model(each, started) for each in api.backend.models() if each.available]
        return Response(orjson.dumps({"models": models}), media_type=JSON_TYPE)

    @routes.get("/api/version", **lookup(OllamaVersion, errors="ollama"))
    async def version() -> Response:
        """Tell the version of this server."""
        return Response(orjson.dumps({"version": __version__}), media_type=JSON_TYPE)

    return routes


def _model(model: ModelInfo, started: str) -> dict[str, Any]:
    return {
        "name": model.id,
        "model": model.id,
        "modified_at": started,
        "size": model.memory_bytes or 0,
        "digest": model.revision or "",
        "details": {"format": "safetensors", "family": "", "families": None, "quantization_level": model.precision},
    }
