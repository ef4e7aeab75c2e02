"""The routes that read: configs, bundles, the epoch and the export."""

from __future__ import annotations

from functools import partial
from typing import Any

import orjson
from anyio import to_thread
from fastapi import APIRouter
from sie_bundle.bundles.registry import Registry
from starlette.requests import Request
from starlette.responses import Response

from sie_cluster.config_service.api.context import ConfigApi
from sie_cluster.config_service.api.tokens import Right
from sie_cluster.configs import answers
from sie_core.api.body.negotiation import JSON_TYPE


def router(api: ConfigApi) -> APIRouter:
    """Make the routes."""
    routes = APIRouter(prefix="/v1/configs")

    def registry(request: Request, right: Right = "read") -> Registry:
        api.tokens.check(request.headers, right)
        api.service.check_ready()
        return api.service.registry

    @routes.get("/models")
    async def list_models(request: Request) -> Response:
        """List every config."""
        listed = partial(answers.models_listing, registry(request), api.service.sources)
        return _json(await to_thread.run_sync(listed, limiter=api.readers))

    @routes.get("/models/{model_id:path}")
    async def get_model(request: Request, model_id: str) -> Response:
        """Tell a config's YAML."""
        return _yaml(answers.model_yaml(registry(request), model_id))

    @routes.post("/resolve")
    async def resolve(request: Request) -> Response:
        """Say which bundle serves a model."""
        registry(request)
        body = await api.body(request)
        return _json(answers.resolve_answer(registry(request), body))

    @routes.get("/bundles")
    async def list_bundles(request: Request) -> Response:
        """List the bundles."""
        return _json(answers.bundles_listing(registry(request)))

    @routes.get("/bundles/{bundle_id:path}")
    async def get_bundle(request: Request, bundle_id: str) -> Response:
        """Tell a bundle's YAML."""
        return _yaml(answers.bundle_yaml(registry(request), bundle_id))

    @routes.get("/epoch")
    async def epoch(request: Request) -> Response:
        """Tell the epoch and the hashes by which a follower sees whether it is behind."""
        return _json(answers.epoch_answer(registry(request)))

    @routes.get("/export")
    async def export(request: Request) -> Response:
        """Tell every config at one epoch."""
        registry(request, "export")
        return Response(await to_thread.run_sync(api.service.export, limiter=api.readers), media_type=JSON_TYPE)

    return routes


def _json(told: dict[str, Any]) -> Response:
    return Response(orjson.dumps(told), media_type=JSON_TYPE)


def _yaml(text: str) -> Response:
    return Response(text, media_type=answers.YAML_TYPE)
