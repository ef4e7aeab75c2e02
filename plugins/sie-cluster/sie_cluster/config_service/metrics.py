"""The metrics of a config service, beside those of its HTTP side."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge


class ConfigMetrics:
    """One set of them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.writes = Counter(
            "sie_config_writes", "Writes answered, by what came of them.", ("method", "result"), registry=self.registry
        )
        self.publish_failures = Counter(
            "sie_config_publish_failures", "Changes that were not told, or not to all.", registry=self.registry
        )
        self.bundle_changes = Counter(
            "sie_config_bundle_changes",
            "Changes of the folder of bundles, followed or not.",
            ("result",),
            registry=self.registry,
        )

    def watch(
        self,
        epoch: Callable[[], float],
        models: Callable[[str], float],
        backup: Callable[[], float],
        broker: Callable[[], float],
    ) -> None:
        """Read the gauges where they are known; `models` takes `api` or `filesystem`."""
        for name, help_, value in (
            ("sie_config_epoch", "Epoch of the configs.", epoch),
            ("sie_config_backup_epoch", "Epoch of the newest backup.", backup),
            ("sie_config_broker_connected", "1 while changes can be told.", broker),
        ):
            Gauge(name, help_, registry=self.registry).set_function(value)
        of_source = Gauge("sie_config_models", "Configs, by where they are from.", ("source",), registry=self.registry)
        for source in ("api", "filesystem"):
            of_source.labels(source).set_function(partial(models, source))
