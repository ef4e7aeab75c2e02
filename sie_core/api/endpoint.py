"""A row of the list of routes: a path, its methods, its dialect and its handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sie_core.api.context import Api
from sie_core.api.http.envelopes import Dialect

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
    """Whether a model answers: such a request passes the gate, and skips Starlette's machinery."""
    described: Mapping[str, Any] | None = None
    """Arguments of FastAPI's `add_api_route` for the OpenAPI document; None leaves the path out of it."""
    schemas: tuple[type[BaseModel], ...] = ()
    """The schemas that `described` refers to."""


def routes_of(api: Api, endpoints: Iterable[Endpoint]) -> list[Route]:
    """Make the routes that Starlette matches; it calls those that do not infer."""
    return [_route(api, each) for each in endpoints]


def _route(api: Api, endpoint: Endpoint) -> Route:
    async def call(request: Request) -> Response:
        return await endpoint.handler(api, request)

    route = Route(endpoint.path, call, include_in_schema=endpoint.described is not None)
    route.methods = set(endpoint.methods)  # Starlette itself would add HEAD to each GET
    return route
