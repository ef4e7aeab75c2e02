"""The metrics of a gateway, beside those of its HTTP side."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge

from sie_cluster.gateway.sight.heard import STANDINGS, Standing, standing_of
from sie_cluster.messages.health import WorkerReport


class GatewayMetrics:
    """One set of them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.slices = Counter("sie_gateway_slices", "Slices sent, every attempt.", registry=self.registry)
        self.again = Counter("sie_gateway_slices_again", "Slices sent once more.", registry=self.registry)
        self.cancelled = Counter("sie_gateway_slices_cancelled", "Slices cancelled.", registry=self.registry)
        self.dropped = Counter(
            "sie_gateway_results_dropped", "Results that nobody waited for, or second ones.", registry=self.registry
        )
        self.refused = Counter("sie_gateway_results_refused", "Results that cannot be read.", registry=self.registry)
        self.dead = Counter(
            "sie_gateway_dead_letters", "Slices refused for what they do to workers.", registry=self.registry
        )
        self.offered = Counter("sie_gateway_bytes_offered", "Of slices larger than a message.", registry=self.registry)
        self.fetched = Counter("sie_gateway_bytes_fetched", "Of results larger than a message.", registry=self.registry)
        self.pool_events = Counter(
            "sie_gateway_pool_events",
            "What this gateway wrote of resource pools: created, updated, renewed, deleted, expired; workers assigned, "
            "released. Add it over gateways.",
            ("event",), registry=self.registry,
        )  # fmt: skip
        self._workers = Gauge(
            "sie_gateway_workers",
            "Workers heard of, by standing: ready, saturated, draining, away. Every gateway hears of all: take the "
            "maximum over gateways.",
            ("status",), registry=self.registry,
        )  # fmt: skip
        self._flights = Gauge("sie_gateway_requests_queued", "Requests that wait for workers.", registry=self.registry)

    def watch(self, flights: Callable[[], float]) -> None:
        """Read the gauge where it is known."""
        self._flights.set_function(flights)

    def watch_workers(self, reports: Callable[[], Iterable[WorkerReport]]) -> None:
        """Read the standing of workers where it is known."""
        for standing in STANDINGS:
            self._workers.labels(standing).set_function(partial(_count, reports, standing))


def _count(reports: Callable[[], Iterable[WorkerReport]], standing: Standing) -> int:
    return sum(standing_of(report) == standing for report in reports())
