"""Calls the endpoints of inference without FastAPI's machinery; FastAPI only documents them.

On the way to an endpoint FastAPI matches the path twice and passes dependencies, exit stacks and eight layers of
middleware. That costs several times the work of the endpoint, which takes the plain request and needs none of it.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from sie_core.api.paths.canonical import canonicalise, without_last_slash


def is_inference(scope: Scope) -> bool:
    """Whether a request is for a model: `DirectRoutes.match` found its route."""
    return "route" in scope


class DirectRoutes:
    """The endpoints of `router`, which take the request and the parameters of their path as strings."""

    def __init__(self, router: APIRouter) -> None:
        self._routes = [route for route in router.routes if isinstance(route, APIRoute)]

    def match(self, scope: Scope) -> bool:
        """Find the route of a request and store it in `scope`, as FastAPI does; False where no route matches.

        A path that is no route's as it stands becomes the canonical one: for these routes, and for those of FastAPI.
        """
        if scope["type"] != "http":
            return False
        if scope["path"].endswith("/"):
            scope["path"] = without_last_slash(scope["path"])
        return self._find(scope) or (canonicalise(scope) and self._find(scope))

    def _find(self, scope: Scope) -> bool:
        for route in self._routes:
            if scope["method"] in (route.methods or ()) and (found := route.path_regex.match(scope["path"])):
                scope["route"], scope["path_params"] = route, found.groupdict()
                return True
        return False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for which `match` found a route."""
        response = await scope["route"].endpoint(Request(scope, receive, send), **scope["path_params"])
        await response(scope, receive, send)


class DirectApp(FastAPI):
    """A FastAPI application that hands the requests of some routes to another ASGI application.

    Args:
        routes: The routes of those requests.
        direct: The application that answers them.
        options: Of FastAPI.
    """

    def __init__(self, routes: DirectRoutes, direct: ASGIApp, **options: Any) -> None:
        super().__init__(**options)
        self._direct_routes = routes
        self._direct = direct

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        answer = self._direct if self._direct_routes.match(scope) else super().__call__
        await answer(scope, receive, send)
