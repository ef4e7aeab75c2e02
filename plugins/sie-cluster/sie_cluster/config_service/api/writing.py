"""The routes that write: a config is added to, replaced or removed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import orjson
from anyio import to_thread
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from sie_cluster.config_service.api.context import ConfigApi
from sie_cluster.config_service.refusals import refusal, store_failed
from sie_cluster.config_service.results import Answer
from sie_core.api.body.negotiation import JSON_TYPE
from sie_core.api.inference.cancellation import Work
from sie_core.contracts import InferenceError

KEY: Final = "Idempotency-Key"
DRY_RUN: Final = "dry_run"
"""The parameter of a query by which a write is only checked."""


def router(api: ConfigApi) -> APIRouter:
    """Make the routes."""
    routes = APIRouter(prefix="/v1/configs/models")

    @routes.post("")
    async def create(request: Request) -> Response:
        """Add a model, or profiles to one."""
        return await _written(api, request, partial(api.service.create, await _body(api, request)))

    @routes.put("/{model_id:path}")
    async def put(request: Request, model_id: str) -> Response:
        """Replace a model's config."""
        return await _written(api, request, partial(api.service.put, model_id, await _body(api, request)))

    @routes.delete("/{model_id:path}")
    async def delete(request: Request, model_id: str) -> Response:
        """Remove what the API was told of a model."""
        _allow(api, request)
        return await _written(api, request, partial(api.service.delete, model_id))

    return routes


def _dry_run(request: Request) -> bool:
    given = request.query_params.get(DRY_RUN, "false")
    if given not in ("true", "false"):
        told = f"{DRY_RUN}={given[:100]!r}: it is true or false."
        raise refusal("INVALID_INPUT", told, param=DRY_RUN, error="invalid_dry_run")
    return given == "true"


def _idempotency_key(request: Request) -> str | None:
    """Return the key of a write; None where there is none. Which keys are well formed, the service says."""
    given = request.headers.getlist(KEY)
    if len(given) > 1:
        told = f"{KEY} is given {len(given)} times; give it once."
        raise refusal("INVALID_INPUT", told, param=KEY, error="invalid_idempotency_key")
    return given[0] if given else None


async def _body(api: ConfigApi, request: Request) -> bytes:
    _allow(api, request)
    return await api.body(request)


def _allow(api: ConfigApi, request: Request) -> None:
    """Refuse a write before its body is read; a dry run is for everybody who may see what it would change."""
    dry_run = _dry_run(request)
    api.tokens.check(request.headers, "export" if dry_run else "write")
    if api.publisher is not None and not dry_run:
        api.publisher.check()
    api.service.check_ready()


async def _written(api: ConfigApi, request: Request, write: Callable[..., Answer]) -> Response:
    """Write, and count what came of it. A client that goes away leaves the write as it is: whole, or not at all."""
    if _dry_run(request):
        answer = await to_thread.run_sync(partial(write, dry_run=True), limiter=api.readers)
        return Response(orjson.dumps({**answer.body, DRY_RUN: True}), answer.status, media_type=JSON_TYPE)
    result = "failed"
    try:
        key = _idempotency_key(request)
        answer = await _on_thread(api, partial(write, key))
        result = _result(answer)
    except InferenceError as error:
        result = str(error.details.get("error", error.code.lower()))
        raise
    finally:
        api.metrics.writes.labels(request.method, result).inc()
    return Response(orjson.dumps(answer.body), answer.status, media_type=JSON_TYPE)


async def _on_thread(api: ConfigApi, write: Callable[[], Answer]) -> Answer:
    """Write; the end of a drain does not wait for a store that hangs.

    Raises:
        InferenceError: What the write raises; `CONFIG_STORE_UNAVAILABLE`: the service stopped before the store
            answered.
    """
    work = Work()
    api.gate.track(work)
    try:
        return await to_thread.run_sync(write, abandon_on_cancel=True, limiter=api.writers)
    except asyncio.CancelledError:
        reason = work.reason()
        raise store_failed() if isinstance(reason, InferenceError) else reason from None
    finally:
        api.gate.untrack(work)


def _result(answer: Answer) -> str:
    """Say what a write that succeeded did."""
    if answer.status == 201:
        return "created"
    return next((did for did in ("replaced", "deleted") if answer.body.get(did)), "unchanged")
