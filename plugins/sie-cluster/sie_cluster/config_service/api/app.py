"""The config service's HTTP API as one ASGI application."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.routing import Route

from sie_cluster.config_service.api import reading, writing
from sie_cluster.config_service.api.context import ConfigApi
from sie_cluster.programs.probes import probes
from sie_core import __version__
from sie_core.api.http import errors
from sie_core.api.http.metrics import HttpMetrics
from sie_core.api.http.middleware import RequestMiddleware
from sie_core.contracts import InferenceError

PREFIX = "/v1/configs"
_LISTED = "docs/operate/cluster/config-service.md lists the routes"


def create_app(api: ConfigApi) -> FastAPI:
    """Build the application."""
    app = FastAPI(title="SIE config service", version=__version__, openapi_url=None, redirect_slashes=False)
    routers = [writing.router(api), reading.router(api)]
    for router in routers:
        app.include_router(router)
    routes = [route for router in routers for route in router.routes if isinstance(route, Route)]
    app.router.routes.extend(probes(lambda: None, lambda: api.ready_problem, api.metrics.registry).routes)
    app.add_exception_handler(InferenceError, errors.on_inference_error)
    app.add_exception_handler(HTTPException, errors.http_error_handler(routes, _LISTED))
    # All but probes and metrics pass the gate.
    app.add_middleware(
        RequestMiddleware,
        api=api,
        metrics=HttpMetrics(api.metrics.registry),
        admitted=lambda scope: scope["path"].startswith(PREFIX),
    )
    return app
