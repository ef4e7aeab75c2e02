"""The metrics of who follows the config service."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class FollowerMetrics:
    """One set of them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.deltas = Counter(
            "sie_config_deltas", "Deltas of the config service: applied, or why not.", ["outcome"], registry=registry
        )
        self.exports = Counter(
            "sie_config_exports", "Exports of the config service: applied, or failed.", ["outcome"], registry=registry
        )
        self.epoch = Gauge("sie_config_epoch", "Epoch of the model configs in force.", registry=registry)
        self.reached = Gauge(
            "sie_config_service_reached", "Whether the config service answered last.", registry=registry
        )
