"""The HTTP API as one ASGI application over an `InferenceBackend`."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from sie_core.api.codings.replies import ANSWERS, LOOKUPS, CompressedReplies
from sie_core.api.context import Api
from sie_core.api.endpoint import Endpoint, routes_of
from sie_core.api.http import errors
from sie_core.api.http.browsers import Browsers
from sie_core.api.http.gate import Gate
from sie_core.api.http.metrics import HttpMetrics
from sie_core.api.http.middleware import RequestMiddleware
from sie_core.api.inference.direct import DirectApp, DirectRoutes, is_inference
from sie_core.api.ops import cluster_status, status
from sie_core.api.pages import routes as pages
from sie_core.api.routes import BELOW, served
from sie_core.auth import Auth, TokenSource
from sie_core.callers import Callers
from sie_core.contracts import FleetBackend, InferenceBackend, InferenceError, PoolLeases, Tracer
from sie_core.contracts.operational import FLEET_FEED, SERVER_FEED
from sie_core.settings import Settings

SOCKETS = frozenset({SERVER_FEED.encode(), FLEET_FEED.encode()})
"""The paths that speak WebSocket."""


def create_app(
    backend: InferenceBackend,
    settings: Settings,
    *,
    registry: CollectorRegistry | None = None,
    gate: Gate | None = None,
    machine_profile: str | None = None,
    places_requests: bool = False,
    browsers: Browsers | None = None,
    pools: PoolLeases | None = None,
    pool_tokens: Sequence[TokenSource] = (),
    routes: Sequence[Endpoint] = (),
    tracer: Tracer | None = None,
    metrics: HttpMetrics | None = None,
    lookups: ASGIApp | None = None,
) -> DirectApp:
    """Build the application.

    Args:
        backend: Answers the requests.
        settings: Limits and waits.
        registry: The metrics that `/metrics` shows; the API registers its own there. None makes a new one.
        gate: Admits inference requests; its owner closes it to drain. None makes one with the limits of `settings`.
        machine_profile: The machine that this server is, for clients that ask for one.
        places_requests: Whether the backend finds workers of the machine profile and the pool that a client asks for.
        browsers: Which web pages may call, under which host names. None takes the origins of `settings` and any name;
            the names depend on the address that is listened on.
        pools: Leases workers; None where there are none to lease.
        pool_tokens: The tokens of who may change pools where clients need tokens.
        routes: Further routes of this program.
        tracer: Records traces of inference requests; its owner closes it. None records none.
        metrics: Counts requests; None makes those of `registry`.
        lookups: Answers what asks for no inference, metrics included; None: this application does.

    Raises:
        SettingsError: Clients need tokens, and there are none.
    """
    gate = gate or Gate.of(settings)
    browsers = browsers or Browsers(settings.cors_origins)
    registry = registry or CollectorRegistry()
    auth, callers = Auth.of(settings, pool_tokens), Callers.of(settings)
    http_metrics = metrics or HttpMetrics(registry)
    api = Api(
        backend, settings, gate, registry, machine_profile, places_requests, browsers, auth, callers, pools,
        totals=http_metrics.totals,
    )  # fmt: skip
    endpoints = served(api, routes)
    direct_routes, table = DirectRoutes(api, endpoints, BELOW), routes_of(api, endpoints)
    answers = CompressedReplies(direct_routes, api.body_threads, ANSWERS)
    direct = RequestMiddleware(answers, api, http_metrics, is_inference, tracer=tracer)
    socket = cluster_status.route_of(api, backend) if isinstance(backend, FleetBackend) else status.route_of(api)
    app = DirectApp(direct_routes, direct, endpoints, [*table, socket], lookups)
    app.add_exception_handler(InferenceError, errors.on_inference_error)
    app.add_exception_handler(HTTPException, errors.http_error_handler(table))
    app.add_middleware(CompressedReplies, threads=api.body_threads, codings=LOOKUPS)
    app.add_middleware(
        RequestMiddleware, api=api, metrics=http_metrics, admitted=is_inference, refusal_of=pages.refusal
    )
    return app
