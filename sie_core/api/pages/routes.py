"""`/` says what this server is, `/docs` lists its routes; a browser without a token is told how to give one."""

from __future__ import annotations

from shlex import quote
from typing import Any, Final, Literal

import orjson
from anyio import to_thread
from pydantic import Field
from starlette.datastructures import URL, Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from sie_core import __version__
from sie_core.api.body.negotiation import JSON_TYPE
from sie_core.api.context import Api, known_models, ready_problem
from sie_core.api.endpoint import Endpoint
from sie_core.api.http.errors import error_response
from sie_core.api.openapi.descriptions import lookup
from sie_core.api.pages.html import page, wants_page
from sie_core.api.pages.listing import Purpose, Trial, headers_of, purposes
from sie_core.api.schema import Schema
from sie_core.contracts import FleetBackend, InferenceError
from sie_core.contracts.operational import FLEET_FEED, SERVER_FEED

MOST_MODELS: Final = 50
"""Models that `/` names."""


class RootReply(Schema):
    """What this server is, and where to look."""

    name: Literal["SIE"]
    version: str
    type: Literal["standalone", "gateway"]
    ready: bool
    models: list[str] = Field(description=f"Those that need nothing fetched, {MOST_MODELS} at most.")
    links: dict[str, str]


LINKS: Final = {
    "docs": "/docs",
    "openapi": "/openapi.json",
    "models": "/v1/models",
    "plugins": "/v1/plugins",
    "health": "/health",
    "ready": "/readyz",
    "metrics": "/metrics",
}


async def root(api: Api, request: Request) -> Response:
    """Say what this server is: a page to browsers, JSON to programs."""
    models, problem = known_models(api), ready_problem(api, api.backend.health())
    here = [model for model in models if model.available]
    is_gateway = isinstance(api.backend, FleetBackend)
    about: dict[str, Any] = {
        "version": __version__,
        "type": "gateway" if is_gateway else "standalone",
        "ready": problem is None,
    }
    if not (api.settings.status_page and wants_page(request.headers)):
        told = {"name": "SIE", **about, "models": [model.id for model in here[:MOST_MODELS]], "links": LINKS}
        return Response(orjson.dumps(told), headers={"Vary": "Accept"}, media_type=JSON_TYPE)
    return await to_thread.run_sync(
        lambda: page(
            "root.html",
            **about,
            problem=problem,
            here=here[:MOST_MODELS],
            here_count=len(here),
            count=len(models),
            trial=_first(purposes(request.app.openapi(), here)),
            base=str(request.base_url).rstrip("/"),
            needs_token=api.auth.on,
            feed=FLEET_FEED if is_gateway else SERVER_FEED,
        )
    )


async def docs(api: Api, request: Request) -> Response:
    """List the routes, on a page that can try them."""
    models = known_models(api)

    def write() -> Response:
        document = request.app.openapi()
        return page(
            "docs.html",
            document=document,
            purposes=purposes(document, models),
            known_headers=headers_of(document),
            needs_token=api.auth.on,
        )

    return await to_thread.run_sync(write)


async def openapi(api: Api, request: Request) -> Response:
    """Describe the routes as OpenAPI does."""
    return Response(orjson.dumps(await to_thread.run_sync(request.app.openapi)), media_type=JSON_TYPE)


ENDPOINTS: Final = (
    lookup("/", root, RootReply, tag="status", dialect="tei", head=True, is_page=True),
    Endpoint("/docs", docs),
    Endpoint("/openapi.json", openapi),
)


def refusal(error: InferenceError, scope: Scope) -> Response:
    """Answer a request that failed; a browser that needs a token gets a page that asks for it."""
    response = error_response(error, scope)
    asks = scope["method"] in ("GET", "HEAD") and wants_page(Headers(scope=scope))
    if error.code != "UNAUTHORIZED" or not asks:
        return response
    challenge = {"WWW-Authenticate": response.headers["WWW-Authenticate"]}
    return page("token.html", response.status_code, challenge, url=quote(str(URL(scope=scope))), path=scope["path"])


def _first(listed: list[Purpose]) -> Trial | None:
    """Return a request that a model which is here answers."""
    trials = (trial for purpose in listed for route in purpose.routes for trial in route.trials)
    return next((trial for trial in trials if trial.body is not None and trial.model), None)
