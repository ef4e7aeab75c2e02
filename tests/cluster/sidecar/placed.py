"""Pulls of a worker that is alone."""

from __future__ import annotations

from collections.abc import Callable

from sie_core.cluster.fleet.health.workers import Workers
from sie_core.cluster.messages.health import WorkerReport
from sie_core.cluster.sidecar.queue.placing import Placing
from sie_core.cluster.sidecar.queue.pulling import Pulls
from sie_core.contracts import Delivery, Pull, QueueTransport
from sie_core.settings import Settings


def pulls_alone(transport: QueueTransport, settings: Settings, on_delivery: Callable[[Delivery, Pull], None]) -> Pulls:
    own = WorkerReport("w1", settings.pool, settings.bundle, up=True)
    placing = Placing(settings, "w1", lambda: own, Workers(), lambda wish: None)
    return Pulls(transport, settings, on_delivery, placing, dict, lambda: None)
