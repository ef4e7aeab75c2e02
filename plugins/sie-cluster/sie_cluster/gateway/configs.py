"""The read routes below `/v1/configs` of a gateway, answered from memory; configs are written at the config service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import orjson
from starlette.requests import Request
from starlette.responses import Response

from sie_cluster.configs.answers import (
    SOURCE,
    YAML_TYPE,
    bundle_yaml,
    bundles_listing,
    check_model_id,
    epoch_answer,
    model_not_found,
    model_yaml,
    models_listing,
    resolve_answer,
)
from sie_cluster.gateway.backend import QueueBackend
from sie_cluster.messages.health import WorkerReport
from sie_core.api.body.body import read_body
from sie_core.api.body.negotiation import JSON_TYPE
from sie_core.api.context import Api
from sie_core.api.endpoint import Endpoint, Handler
from sie_core.api.http.envelopes import CONFIGS_PREFIX
from sie_core.api.http.errors import error_response
from sie_core.catalog.configs.snapshot import profiles_of
from sie_core.contracts import InferenceError

MOST_BODY_BYTES: Final = 1 << 16
"""Of a request to resolve a model."""


async def list_models(api: Api, request: Request) -> Response:
    """List every config, with its profiles and where it came from."""
    gateway = _gateway(api)
    return _json(models_listing(gateway.config_registry(), gateway.config_sources()))


async def model_status(api: Api, request: Request) -> Response:
    """Say which workers have the config of a model."""
    return _json(status_answer(_gateway(api), request.path_params["model"]))


async def get_model(api: Api, request: Request) -> Response:
    """Return the YAML of a config."""
    return Response(model_yaml(_gateway(api).config_registry(), request.path_params["model"]), media_type=YAML_TYPE)


async def resolve(api: Api, request: Request) -> Response:
    """Name the bundle whose workers serve a model."""
    body = await read_body(request, MOST_BODY_BYTES, api.gate, api.body_threads)
    return _json(resolve_answer(_gateway(api).config_registry(), body))


async def list_bundles(api: Api, request: Request) -> Response:
    """List the bundles, with the number of workers of each that take work."""
    up = [worker.bundle for worker in _gateway(api).config_workers() if worker.up]
    told = bundles_listing(_gateway(api).config_registry())["bundles"]
    return _json({"bundles": [{**each, "connected_workers": up.count(each["bundle_id"])} for each in told]})


async def get_bundle(api: Api, request: Request) -> Response:
    """Return the YAML of a bundle."""
    return Response(bundle_yaml(_gateway(api).config_registry(), request.path_params["bundle"]), media_type=YAML_TYPE)


async def epoch(api: Api, request: Request) -> Response:
    """Tell the epoch and the hashes of the configs in force."""
    return _json(epoch_answer(_gateway(api).config_registry()))


async def write(api: Api, request: Request) -> Response:
    """Refuse to write, and name who does."""
    return error_response(_elsewhere(request, _gateway(api).config_service_url()), request.scope, {"Allow": "GET"})


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
"""The routes over a `QueueBackend`."""


def status_answer(backend: QueueBackend, model_id: str) -> dict[str, Any]:
    """Answer `GET /models/{id}/status`: which workers have the config in force.

    A worker has it once the configs that it serves have the hash of its bundle, at the epoch of the model's last change
    or later. A bundle is `acked` where it has workers and all of them have it; `all_bundles_acked` where that is so of
    every bundle with workers, and there is one.

    Raises:
        InferenceError: `INVALID_INPUT`, `MODEL_NOT_FOUND`.
    """
    registry = backend.config_registry()
    base = check_model_id(model_id).partition(":")[0]
    config = registry.catalog.configs.get(model_id) or registry.catalog.configs.get(base)
    if config is None or model_id not in {config.id, *(f"{config.id}:{name}" for name in config.profiles)}:
        raise model_not_found(registry, model_id)
    routes = [route for each in profiles_of(config) if (route := registry.routes.get(each.id)) is not None]
    names = {name for route in routes for name in route.compatible}
    epoch, workers = registry.epochs.get(config.id, 0), backend.config_workers()
    bundles = [
        _bundle(name, registry.config_hashes[name], epoch, [each for each in workers if each.bundle == name])
        for name in registry.bundles
        if name in names
    ]
    staffed = [each for each in bundles if each["total_eligible_workers"]]
    return {
        "model_id": model_id,
        "config_epoch": registry.catalog.config_epoch or 0,
        "all_bundles_acked": bool(staffed) and all(each["acked"] for each in staffed),
        "no_bundles": not bundles,
        "bundles": bundles,
        "source": backend.config_sources().get(config.id, SOURCE),
    }


def _bundle(name: str, expected: str, epoch: int, workers: Sequence[WorkerReport]) -> dict[str, Any]:
    acked = {each.worker for each in workers if each.config_hash == expected and (each.config_epoch or 0) >= epoch}
    pending = {each.worker for each in workers} - acked
    return {
        "bundle_id": name,
        "expected_bundle_config_hash": expected,
        "total_eligible_workers": len(workers),
        "acked_workers": sorted(acked),
        "pending_workers": sorted(pending),
        "acked": bool(workers) and not pending,
    }


def _gateway(api: Api) -> QueueBackend:
    return cast("QueueBackend", api.backend)


def _elsewhere(request: Request, url: str | None) -> InferenceError:
    where = (
        f"send {request.method} {url.rstrip('/')}{request.url.path[:400]} to the config service"
        if url
        else "its models come from its own folder, SIE_MODELS_DIR; a config service is named by SIE_CONFIG_SERVICE_URL"
    )
    return InferenceError("METHOD_NOT_ALLOWED", f"A gateway writes no configs: {where}.")


def _json(content: dict[str, Any]) -> Response:
    return Response(orjson.dumps(content), media_type=JSON_TYPE)
