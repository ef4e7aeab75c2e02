"""The metrics of a sidecar."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge


class SidecarMetrics:
    """One set of them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.pulled = Counter("sie_sidecar_slices_pulled", "Slices delivered.", registry=self.registry)
        ended = Counter(
            "sie_sidecar_slices_ended",
            "Slices held no more: answered, cancelled, gateway_lost, handed_back, lost, refused.",
            ("how",), registry=self.registry,
        )  # fmt: skip
        self._ended = cache(ended.labels)
        self.items = Counter("sie_sidecar_items_answered", "Items of the slices answered.", registry=self.registry)
        self._held = Gauge("sie_sidecar_slices_held", "Slices delivered and not yet answered.", registry=self.registry)
        self._up = Gauge("sie_sidecar_adapter_up", "Whether the adapter process takes work.", registry=self.registry)

    def ended(self, how: str) -> None:
        """Count a slice that is held no more."""
        self._ended(how).inc()

    def watch(self, held: Callable[[], float], up: Callable[[], float]) -> None:
        """Read the gauges where they are known."""
        self._held.set_function(held)
        self._up.set_function(up)
