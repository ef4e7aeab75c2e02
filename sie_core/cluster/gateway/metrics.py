"""The metrics of a gateway, beside those of its HTTP side."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge


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
        self._flights = Gauge("sie_gateway_requests_queued", "Requests that wait for workers.", registry=self.registry)

    def watch(self, flights: Callable[[], float]) -> None:
        """Read the gauge where it is known."""
        self._flights.set_function(flights)
