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
        self._epoch = Gauge("sie_config_epoch", "Epoch of the configs.", registry=self.registry)
        self._models = Gauge(
            "sie_config_models", "Configs, by where they are from.", ("source",), registry=self.registry
        )
        self._backup = Gauge("sie_config_backup_epoch", "Epoch of the newest backup.", registry=self.registry)
        self._broker = Gauge("sie_config_broker_connected", "1 while changes can be told.", registry=self.registry)

    def watch(
        self,
        epoch: Callable[[], float],
        models: Callable[[str], float],
        backup: Callable[[], float],
        broker: Callable[[], bool],
    ) -> None:
        """Read the gauges where they are known; `models` takes `api` or `filesystem`."""
        self._epoch.set_function(epoch)
        for source in ("api", "filesystem"):
            self._models.labels(source).set_function(partial(models, source))
        self._backup.set_function(backup)
        self._broker.set_function(lambda: float(broker()))
