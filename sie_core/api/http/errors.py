"""Errors as replies: one JSON body for every failure, in the envelope of the path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from sie_core.api.http.envelopes import envelope_of
from sie_core.api.paths.nearest import nearest_path, shown
from sie_core.contracts import InferenceError

_HTTP_CODES: Final = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}


def error_response(error: InferenceError, scope: Scope, headers: dict[str, str] | None = None) -> Response:
    """Render `error` for the client of a request, with `Retry-After` where a retry may help."""
    headers, envelope = dict(headers or {}), envelope_of(scope)
    if error.code == "UNAUTHORIZED":
        headers["WWW-Authenticate"] = "Bearer"
    if error.retry_after_s is not None:
        headers["Retry-After"] = envelope.retry_after(error.retry_after_s)
    status = envelope.status_of(error, scope)
    return Response(orjson.dumps(envelope.body(error), default=str), status, headers, "application/json")


async def on_inference_error(request: Request, error: Exception) -> Response:
    """Answer an error of the table."""
    assert isinstance(error, InferenceError)
    return error_response(error, request.scope)


def http_error_handler(
    routes: Sequence[Route], listed: str = "GET /docs lists the routes"
) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Make the handler of unknown paths and methods, which the router refuses; it names the route meant.

    Args:
        routes: Those of the application. `Allow` lists the methods of all routes of a path; the router itself would
            list those of the first.
        listed: Says where a client finds the routes.
    """
    documented = {
        route.path: ", ".join(sorted(_methods(route) - {"HEAD"})) for route in routes if route.include_in_schema
    }

    async def on_http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = _HTTP_CODES.get(error.status_code, "INTERNAL_ERROR")
        headers, path = dict(error.headers or {}), request.url.path
        methods = {method for route in routes if route.path_regex.match(path) for method in _methods(route)}
        remedy = listed
        if methods:
            headers["Allow"] = ", ".join(sorted(methods))
            remedy = f"It takes {headers['Allow']}"
        elif near := nearest_path(path, documented):
            remedy = f"Did you mean {documented[near]} {shown(near)}? {listed}"
        own = InferenceError(code, f"There is no route {request.method} {path[:200]}. {remedy}.")
        return error_response(own, request.scope, headers)

    return on_http_error


def _methods(route: Route) -> set[str]:
    return route.methods or set()
