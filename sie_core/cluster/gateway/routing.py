"""Where a request goes: its model, the subject of its bundle's work and the queue pool, from memory."""

from __future__ import annotations

from dataclasses import dataclass

from sie_core.catalog import Catalog
from sie_core.catalog.bundles.registry import DEFAULT_QUEUE_POOL, Registry, registry_of_one_bundle
from sie_core.cluster.subjects import work_subject
from sie_core.contracts import InferenceError, ResolvedModel
from sie_core.settings import Settings

NO_CATALOG = "The config service has not told yet which models are served"
RETRY_S = 5.0


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the work of a model goes."""

    model: ResolvedModel
    pool: str
    """The queue pool."""
    subject: str
    """Of its work: that of the bundle whose workers are asked."""
    config_epoch: int | None
    """The epoch of its config's last change; None without a config service."""


def own_registry(catalog: Catalog, settings: Settings) -> Registry:
    """Make the registry of a gateway without a config service: all goes to the bundle and the pool of the settings."""
    return registry_of_one_bundle(catalog, settings.bundle, settings.pool)


class Router:
    """Finds destinations by the registry of now.

    Args:
        pool: The queue pool of models whose config names none.
        registry: Where models are served; None until it is known.
    """

    def __init__(self, pool: str, registry: Registry | None = None) -> None:
        self._pool = pool
        self.known = registry

    @property
    def registry(self) -> Registry:
        """Where models are served.

        Raises:
            InferenceError: `QUEUE_UNAVAILABLE`: it is not known yet.
        """
        if self.known is None:
            raise InferenceError("QUEUE_UNAVAILABLE", f"{NO_CATALOG}; retry.", retry_after_s=RETRY_S)
        return self.known

    def route(self, name: str) -> Destination:
        """Find where `id`, `id:profile` or `bundle:/id[:profile]` goes.

        Raises:
            InferenceError: As `Registry.resolve`, and `QUEUE_UNAVAILABLE` before the first registry.
        """
        registry = self.registry
        route = registry.resolve(name)
        pool = self._pool if route.pool == DEFAULT_QUEUE_POOL else route.pool
        followed = registry.catalog.config_epoch is not None
        epoch = registry.epochs.get(route.model.config.id, 0) if followed else None
        return Destination(route.model, pool, work_subject(route.model.id, pool, route.bundle), epoch)
