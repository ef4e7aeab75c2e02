"""Pulls of a worker that is alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sie_cluster.fleet.health.workers import Workers
from sie_cluster.messages.health import WorkerReport
from sie_cluster.settings import ClusterSettings
from sie_cluster.sidecar.queue.credit import Credit
from sie_cluster.sidecar.queue.placing import Placing
from sie_cluster.sidecar.queue.pulling import Pulls

from sie_core.contracts import Delivery, Pull, QueueTransport


def pulls_alone(
    transport: QueueTransport,
    settings: ClusterSettings,
    on_delivery: Callable[[Delivery, Pull], None],
    credit: Credit | None = None,
) -> Pulls:
    """Without `credit` each delivery counts as at work, at a cost of 1."""
    own = WorkerReport("w1", settings.pool, settings.bundle, up=True)
    placing = Placing(settings, "w1", lambda: own, Workers(), lambda wish: None)
    if credit is not None:
        return Pulls(transport, settings, on_delivery, placing, credit, lambda: None)
    counting = Credit(settings, asyncio.get_running_loop().call_later)

    def taken(delivery: Delivery, pull: Pull) -> None:
        counting.take(pull, 1)
        on_delivery(delivery, pull)

    return Pulls(transport, settings, taken, placing, counting, lambda: None)
