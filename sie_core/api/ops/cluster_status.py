"""`/ws/cluster-status`: the workers behind a gateway, sent every second over a WebSocket."""

from __future__ import annotations

import time
from typing import Any, Final

from starlette.routing import WebSocketRoute

from sie_core.api.context import Api
from sie_core.api.ops.feed import feed_route
from sie_core.api.ops.health import describe_fleet
from sie_core.contracts import FleetBackend
from sie_core.contracts.operational import FLEET_FEED

PERIOD_S: Final = 1.0
"""Seconds between two messages to a watcher."""


def route_of(api: Api, backend: FleetBackend) -> WebSocketRoute:
    """Make the route."""

    def describe() -> dict[str, Any]:
        return {"timestamp": time.time(), "traffic": api.totals.describe(), **describe_fleet(api, backend)}

    return feed_route(FLEET_FEED, PERIOD_S, describe, api.auth)
