"""The HTTP side of programs that serve no inference: `/healthz`, `/livez`, `/readyz` and `/metrics`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from sie_core.auth import Auth
from sie_core.contracts import InferenceError

Problem = Callable[[], str | None]


def tell_of_process(registry: CollectorRegistry) -> None:
    """Have metrics tell of this process, too: its memory and CPU, its Python and that one's garbage."""
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)


def probes(
    live: Problem,
    ready: Problem,
    registry: CollectorRegistry,
    auth: Auth | None = None,
    others: Sequence[BaseRoute] = (),
) -> Starlette:
    """Make the application.

    Args:
        live: Says why the process should be restarted; None where it should not.
        ready: Says why it takes no work.
        registry: The metrics.
        auth: Who may see them; None: everybody.
        others: More routes.
    """

    def verdict(problem: Problem) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            said = problem()
            return PlainTextResponse(said or "ok", 503 if said else 200)

        return answer

    def metrics(request: Request) -> Response:
        if auth is not None:
            try:
                auth.check(request.url.path, request.headers.getlist("authorization"))
            except InferenceError as error:
                return refusal(error)
        write, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(write(registry), headers={"Content-Type": content_type})

    return Starlette(
        routes=[
            Route("/healthz", verdict(live)),
            Route("/livez", verdict(live)),
            Route("/readyz", verdict(ready)),
            Route("/metrics", metrics),
            *others,
        ]
    )


def refusal(error: InferenceError) -> Response:
    """Answer bytes that are no request, and requests without a token."""
    headers = {"WWW-Authenticate": "Bearer"} if error.code == "UNAUTHORIZED" else None
    return PlainTextResponse(error.message, error.spec.status, headers)
