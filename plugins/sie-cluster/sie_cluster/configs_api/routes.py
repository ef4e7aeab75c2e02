"""The read routes below `/v1/configs` of a gateway, answered from memory; configs are written at the config service."""

from __future__ import annotations

from typing import Any, Final, cast

import orjson
from starlette.requests import Request
from starlette.responses import Response

from sie_cluster.configs_api.fleet import FleetConfigs, gateway_bundles, status_answer
from sie_cluster.configs_api.reading import (
    YAML_TYPE,
    bundle_yaml,
    epoch_answer,
    model_yaml,
    models_listing,
    resolve_answer,
)
from sie_core.api.body.body import read_body
from sie_core.api.body.negotiation import JSON_TYPE
from sie_core.api.context import Api
from sie_core.api.endpoint import Endpoint, Handler
from sie_core.api.http.envelopes import CONFIGS_PREFIX
from sie_core.api.http.errors import error_response
from sie_core.contracts import InferenceError

MOST_BODY_BYTES: Final = 1 << 16
"""Of a request to resolve a model."""


async def list_models(api: Api, request: Request) -> Response:
    """List every config, with its profiles and where it came from."""
    fleet = _fleet(api)
    return _json(models_listing(fleet.config_registry(), fleet.config_sources()))


async def model_status(api: Api, request: Request) -> Response:
    """Say which workers have the config of a model."""
    return _json(status_answer(_fleet(api), request.path_params["model"]))


async def get_model(api: Api, request: Request) -> Response:
    """Return the YAML of a config."""
    return Response(model_yaml(_fleet(api).config_registry(), request.path_params["model"]), media_type=YAML_TYPE)


async def resolve(api: Api, request: Request) -> Response:
    """Name the bundle whose workers serve a model."""
    body = await read_body(request, MOST_BODY_BYTES, api.gate, api.body_threads)
    return _json(resolve_answer(_fleet(api).config_registry(), body))


async def list_bundles(api: Api, request: Request) -> Response:
    """List the bundles, with their connected workers."""
    return _json(gateway_bundles(_fleet(api)))


async def get_bundle(api: Api, request: Request) -> Response:
    """Return the YAML of a bundle."""
    return Response(bundle_yaml(_fleet(api).config_registry(), request.path_params["bundle"]), media_type=YAML_TYPE)


async def epoch(api: Api, request: Request) -> Response:
    """Tell the epoch and the hashes of the configs in force."""
    return _json(epoch_answer(_fleet(api).config_registry()))


async def write(api: Api, request: Request) -> Response:
    """Refuse to write, and name who does."""
    return error_response(_elsewhere(request, _fleet(api).config_service_url()), request.scope, {"Allow": "GET"})


def _endpoint(path: str, handler: Handler, *methods: str) -> Endpoint:
    return Endpoint(CONFIGS_PREFIX + path, handler, "configs", methods or ("GET",))


ENDPOINTS: Final = (
    _endpoint("/models", list_models),
    _endpoint("/models/{model:path}/status", model_status),
    _endpoint("/models/{model:path}", get_model),
    _endpoint("/resolve", resolve, "POST"),
    _endpoint("/bundles", list_bundles),
    _endpoint("/bundles/{bundle}", get_bundle),
    _endpoint("/epoch", epoch),
    _endpoint("/models", write, "POST", "PUT", "DELETE"),
    _endpoint("/models/{model:path}", write, "POST", "PUT", "DELETE"),
)
"""The routes over a backend that has `FleetConfigs`."""


def _fleet(api: Api) -> FleetConfigs:
    return cast("FleetConfigs", api.backend)


def _elsewhere(request: Request, url: str | None) -> InferenceError:
    where = (
        f"send {request.method} {url.rstrip('/')}{request.url.path[:400]} to the config service"
        if url
        else "its models come from its own folder, SIE_MODELS_DIR; a config service is named by SIE_CONFIG_SERVICE_URL"
    )
    return InferenceError("METHOD_NOT_ALLOWED", f"A gateway writes no configs: {where}.")


def _json(content: dict[str, Any]) -> Response:
    return Response(orjson.dumps(content), media_type=JSON_TYPE)
