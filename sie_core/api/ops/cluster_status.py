"""`/ws/cluster-status`: the workers behind a gateway, sent every second over a WebSocket."""

from __future__ import annotations

import time
from typing import Final

from starlette.routing import WebSocketRoute

from sie_core.api.context import Api
from sie_core.api.ops.feed import feed_route
from sie_core.api.ops.health import describe_fleet
from sie_core.contracts import FleetBackend

PATH: Final = "/ws/cluster-status"
PERIOD_S: Final = 1.0
"""Seconds between two messages to a watcher."""


def route_of(api: Api, backend: FleetBackend) -> WebSocketRoute:
    """Make the route."""
    return feed_route(PATH, PERIOD_S, lambda: {"timestamp": time.time(), **describe_fleet(api, backend)}, api.auth)
