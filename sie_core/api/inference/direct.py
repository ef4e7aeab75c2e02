"""The inference routes, called without what FastAPI does around an endpoint.

FastAPI documents them like any other route. What it does on the way to one (matching twice, dependencies, exit stacks,
eight layers of middleware) costs several times what the endpoint itself does, and an endpoint that takes the plain
request needs none of it. This must not know what a route does.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send


class DirectRoutes:
    """The endpoints of `router`, which take the plain request and the parameters of their path as texts."""

    def __init__(self, router: APIRouter) -> None:
        self._routes = [route for route in router.routes if isinstance(route, APIRoute)]

    def match(self, scope: Scope) -> bool:
        """Find the route of a request and note it in `scope`, as FastAPI does; False where it is none of these."""
        if scope["type"] != "http":
            return False
        for route in self._routes:
            found = route.path_regex.match(scope["path"])
            if found and scope["method"] in (route.methods or ()):
                scope["route"], scope["path_params"] = route, found.groupdict()
                return True
        return False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that matched."""
        response = await scope["route"].endpoint(Request(scope, receive, send), **scope["path_params"])
        await response(scope, receive, send)


class DirectApp(FastAPI):
    """A FastAPI application that some requests pass by.

    Args:
        routes: The routes of those requests.
        direct: What answers them.
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
