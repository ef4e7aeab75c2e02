"""The read routes below `/v1/configs` of a gateway, answered from memory; configs are written at the config service."""

from __future__ import annotations

from typing import Any, Final

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from sie_core.api.body.body import read_body
from sie_core.api.body.negotiation import JSON_TYPE
from sie_core.api.configs.fleet import FleetConfigs, gateway_bundles, status_answer
from sie_core.api.configs.reading import (
    YAML_TYPE,
    bundle_yaml,
    epoch_answer,
    model_yaml,
    models_listing,
    resolve_answer,
)
from sie_core.api.context import Api
from sie_core.api.http.errors import error_response
from sie_core.contracts import InferenceError

PREFIX: Final = "/v1/configs"
MOST_BODY_BYTES: Final = 1 << 16
"""Of a request to resolve a model."""


def router(api: Api, backend: FleetConfigs) -> APIRouter:
    """Make the routes."""
    routes = APIRouter(prefix=PREFIX, tags=["configs"], include_in_schema=False)

    @routes.get("/models")
    async def list_models() -> Response:
        """List every config, with its profiles and where it came from."""
        return _json(models_listing(backend.config_registry(), backend.config_sources()))

    @routes.get("/models/{model:path}/status")
    async def model_status(model: str) -> Response:
        """Say which workers have the config of a model."""
        return _json(status_answer(backend, model))

    @routes.get("/models/{model:path}")
    async def get_model(model: str) -> Response:
        """Return the YAML of a config."""
        return Response(model_yaml(backend.config_registry(), model), media_type=YAML_TYPE)

    @routes.post("/resolve")
    async def resolve(request: Request) -> Response:
        """Name the bundle whose workers serve a model."""
        body = await read_body(request, MOST_BODY_BYTES, api.gate, api.body_threads)
        return _json(resolve_answer(backend.config_registry(), body))

    @routes.get("/bundles")
    async def list_bundles() -> Response:
        """List the bundles, with their connected workers."""
        return _json(gateway_bundles(backend))

    @routes.get("/bundles/{bundle}")
    async def get_bundle(bundle: str) -> Response:
        """Return the YAML of a bundle."""
        return Response(bundle_yaml(backend.config_registry(), bundle), media_type=YAML_TYPE)

    @routes.get("/epoch")
    async def epoch() -> Response:
        """Tell the epoch and the hashes of the configs in force."""
        return _json(epoch_answer(backend.config_registry()))

    @routes.api_route("/models", methods=["POST", "PUT", "DELETE"])
    @routes.api_route("/models/{model:path}", methods=["POST", "PUT", "DELETE"])
    async def write(request: Request) -> Response:
        """Refuse to write, and name who does."""
        return error_response(_elsewhere(request, backend.config_service_url()), request.scope, {"Allow": "GET"})

    return routes


def _elsewhere(request: Request, url: str | None) -> InferenceError:
    where = (
        f"send {request.method} {url.rstrip('/')}{request.url.path[:400]} to the config service"
        if url
        else "its models come from its own folder, SIE_MODELS_DIR; a config service is named by SIE_CONFIG_SERVICE_URL"
    )
    return InferenceError(
        "METHOD_NOT_ALLOWED",
        f"A gateway writes no configs: {where}.",
        details={"error": "method_not_allowed"},
    )


def _json(content: dict[str, Any]) -> Response:
    return Response(orjson.dumps(content), media_type=JSON_TYPE)
