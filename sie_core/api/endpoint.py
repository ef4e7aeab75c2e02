"""A row of the list of routes: a path, its methods, its dialect and its handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import getdoc
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from sie_core.api.context import Api
from sie_core.api.http.envelopes import Dialect
from sie_core.api.http.model_id import ModelId

Handler = Callable[[Api, Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One path of the API."""

    path: str
    """Starlette's template; `{model:path}` or another convertor of `model` stands for a model."""
    handler: Handler
    dialect: Dialect = "native"
    """Decides the envelope of every error on the path."""
    methods: tuple[str, ...] = ("GET",)
    infers: bool = False
    """Whether a model answers: such a request passes the gate, and skips FastAPI's machinery."""
    described: Mapping[str, Any] | None = None
    """Arguments of FastAPI's `add_api_route` for the OpenAPI document; None leaves the path out of it."""
    schemas: tuple[type[BaseModel], ...] = ()
    """The schemas that `described` refers to."""


def fastapi_router(api: Api, endpoints: Iterable[Endpoint]) -> APIRouter:
    """Register `endpoints` with FastAPI, which documents them and calls those that do not infer."""
    router = APIRouter()
    for each in endpoints:
        call = _bound(api, each)
        if each.described is None:
            router.add_api_route(each.path, call, methods=list(each.methods), include_in_schema=False)
            continue
        said = {"name": getattr(each.handler, "__name__", None), "description": getdoc(each.handler), **each.described}
        if "HEAD" in each.methods:
            router.add_api_route(each.path, call, methods=["HEAD"], include_in_schema=False)
        router.add_api_route(each.path, call, methods=[name for name in each.methods if name != "HEAD"], **said)
    return router


def _bound(api: Api, endpoint: Endpoint) -> Callable[..., Awaitable[Response]]:
    async def of_model(request: Request, model: ModelId) -> Response:
        return await endpoint.handler(api, request)

    async def of_none(request: Request) -> Response:
        return await endpoint.handler(api, request)

    return of_model if "{model" in endpoint.path else of_none
