"""Where a request goes: its model, the subject of its bundle's work and the queue pool, from memory."""

from __future__ import annotations

from typing import NamedTuple

from sie_bundle.bundles.registry import DEFAULT_QUEUE_POOL, Registry, registry_of_one_bundle

from sie_cluster.gateway.capacity.lanes import Lane
from sie_cluster.gateway.capacity.profiles import Profiles
from sie_cluster.gateway.keys import Keys
from sie_cluster.queue.subjects import ANY_PROFILE, DEFAULT_RESOURCE_POOL, has_own_bucket, work_subject
from sie_cluster.settings import ClusterSettings
from sie_core.catalog import Catalog
from sie_core.contracts import InferenceError, PoolSpec, ResolvedModel

NO_CATALOG = "The config service has not told yet which models are served"
RETRY_S = 5.0
ANY_WORKERS = PoolSpec()


class Destination(NamedTuple):
    """Where the work of a model goes."""

    model: ResolvedModel
    pool: str
    """The queue pool."""
    subject: str
    """Of its work, where the workers pull it that may answer."""
    config_epoch: int | None
    """The epoch of its config's last change; None without a config service."""
    bundle: str
    resource_pool: str
    profile: str
    """The machine profile whose workers alone may answer."""
    lora: str | None = None
    """The LoRA adapter that is asked for."""

    @property
    def lane(self) -> Lane:
        """Which workers are asked."""
        return Lane(self.pool, self.resource_pool, self.profile, self.bundle)


def own_registry(catalog: Catalog, settings: ClusterSettings) -> Registry:
    """Make the registry of a gateway without a config service: all goes to the bundle and the pool of the settings."""
    return registry_of_one_bundle(catalog, settings.bundle, settings.pool)


class Router:
    """Finds destinations by the registry of now.

    Args:
        pool: The queue pool of models whose config names none.
        registry: Where models are served; None until it is known.
        profiles: Those that may be asked for.
        keys: Those that have subjects of their own.
    """

    def __init__(
        self,
        pool: str,
        registry: Registry | None = None,
        profiles: Profiles | None = None,
        keys: Keys | None = None,
    ) -> None:
        self._pool, self._profiles, self._keys = pool, profiles or Profiles(), keys or Keys()
        self.known = registry

    @property
    def configured_gpus(self) -> list[str]:
        """The machine profiles that can be scaled up."""
        return sorted(self._profiles.configured)

    @property
    def registry(self) -> Registry:
        """Where models are served.

        Raises:
            InferenceError: `QUEUE_UNAVAILABLE`: it is not known yet.
        """
        if self.known is None:
            raise InferenceError("QUEUE_UNAVAILABLE", f"{NO_CATALOG}; retry.", retry_after_s=RETRY_S)
        return self.known

    def route(
        self,
        name: str,
        *,
        profile: str | None = None,
        resource_pool: str | None = None,
        lora: str | None = None,
        spec: PoolSpec = ANY_WORKERS,
    ) -> Destination:
        """Find where `id`, `id:profile` or `bundle:/id[:profile]` goes.

        Args:
            name: Of the model.
            profile: The machine profile that was asked for; None for any.
            resource_pool: The one that was asked for; None for what nobody leased.
            lora: The LoRA adapter that is asked for.
            spec: That of the resource pool; its workers may be of one bundle, and of another queue pool.

        Raises:
            InferenceError: As `Registry.resolve` and `Profiles.find`; `QUEUE_UNAVAILABLE` before the first registry.
        """
        registry = self.registry
        route = registry.resolve(name if spec.bundle is None or ":/" in name else f"{spec.bundle}:/{name}")
        pool = spec.queue_pool or (self._pool if route.pool == DEFAULT_QUEUE_POOL else route.pool)
        followed = registry.catalog.config_epoch is not None
        epoch = registry.epochs.get(route.model.config.id, 0) if followed else None
        of_profile = ANY_PROFILE if profile is None else self._profiles.find(profile)
        leased = resource_pool or DEFAULT_RESOURCE_POOL
        key = work_subject(
            route.model.id,
            pool,
            route.bundle,
            resource_pool=leased,
            profile=of_profile,
            lora=lora,
            own=has_own_bucket(lora, route.model.config.loras),
        )
        subject = self._keys.subject(pool, key)
        return Destination(route.model, pool, subject, epoch, route.bundle, leased, of_profile, lora)
