"""Finds the route of a request, and calls the routes of inference without Starlette's machinery.

On the way to an endpoint Starlette matches the path again and passes exit stacks and layers of middleware. That costs
several times the work of the endpoint, which takes the plain request and needs none of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import BaseRoute, compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from sie_core.api.context import Api
from sie_core.api.endpoint import Endpoint
from sie_core.api.http.envelopes import DIALECT, Dialect
from sie_core.api.paths.canonical import canonicalise, without_last_slash


def is_inference(scope: Scope) -> bool:
    """Whether a request is for a model: `DirectRoutes.match` found its route."""
    return "route" in scope


class DirectRoutes:
    """The routes of one API.

    Args:
        api: What their handlers are given.
        endpoints: Every route; where two match a request, the first one wins.
        below: The dialect of a path that no route has, by its prefix; the first that fits counts.
    """

    def __init__(self, api: Api, endpoints: Iterable[Endpoint], below: Mapping[str, Dialect]) -> None:
        self._api = api
        self._endpoints = [(compile_path(each.path)[0], each) for each in endpoints]
        self._below = below

    def match(self, scope: Scope) -> bool:
        """Store the dialect of a request in `scope`, and its route where a model answers; return whether one does.

        A path that is no route's as it stands becomes the canonical one: for these routes, and for those of Starlette.
        """
        if scope["type"] != "http":
            return False
        if scope["path"].endswith("/"):
            scope["path"] = without_last_slash(scope["path"])
        return self._find(scope) or (canonicalise(scope) and self._find(scope))

    def _find(self, scope: Scope) -> bool:
        method, path = scope["method"], scope["path"]
        scope[DIALECT] = None
        for template, endpoint in self._endpoints:
            if not (found := template.match(path)):
                continue
            scope[DIALECT] = scope[DIALECT] or endpoint.dialect
            if endpoint.infers and method in endpoint.methods:
                scope["route"], scope["path_params"] = endpoint, found.groupdict()
                return True
        if scope[DIALECT] is None:
            scope[DIALECT] = next((name for prefix, name in self._below.items() if path.startswith(prefix)), "native")
        return False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for which `match` found a route."""
        response = await scope["route"].handler(self._api, Request(scope, receive, send))
        await response(scope, receive, send)


class DirectApp(Starlette):
    """A Starlette application that hands the requests of some routes to another ASGI application.

    Args:
        direct_routes: The routes of those requests.
        direct: The application that answers them.
        endpoints: Every route, for the OpenAPI document.
        routes: Those that Starlette matches.
        lookups: The application that answers the other requests; None: this one.
    """

    def __init__(
        self,
        direct_routes: DirectRoutes,
        direct: ASGIApp,
        endpoints: Sequence[Endpoint],
        routes: Sequence[BaseRoute],
        lookups: ASGIApp | None = None,
    ) -> None:
        super().__init__(routes=routes)
        self.router.redirect_slashes = False
        self._direct_routes = direct_routes
        self._direct = direct
        self._lookups: ASGIApp = lookups or super().__call__
        self._endpoints = endpoints
        self._openapi: dict[str, Any] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        answer = self._direct if self._direct_routes.match(scope) else self._lookups
        await answer(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document, which is built at the first call; that takes a second."""
        if self._openapi is None:
            from sie_core.api.openapi.document import build_openapi  # it loads FastAPI

            self._openapi = build_openapi(self._endpoints)
        return self._openapi
