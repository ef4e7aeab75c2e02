"""`GET /metrics`: everything that the process measures."""

from __future__ import annotations

from typing import Final

from anyio import to_thread
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response

from sie_core.api.context import Api
from sie_core.api.openapi.descriptions import probe


async def metrics(api: Api, request: Request) -> Response:
    """Show every metric of the process."""
    write, content_type = choose_encoder(request.headers.get("accept", ""))
    # With 25 models it is half a megabyte and takes 50 ms, in which the loop answers others.
    text = await to_thread.run_sync(write, api.registry, limiter=api.metrics_turn)
    return Response(text, headers={"Content-Type": content_type})


ENDPOINTS: Final = (probe("/metrics", metrics, "Every metric, in Prometheus' text format.", can_fail=False),)
