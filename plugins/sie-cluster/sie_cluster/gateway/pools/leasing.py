"""What a gateway's API asks of resource pools: checks against what the cluster has, and views for clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sie_bundle.bundles.registry import DEFAULT_QUEUE_POOL

from sie_cluster.fleet.pools.changes import delete, not_found
from sie_cluster.fleet.pools.pools import Pools
from sie_cluster.gateway.capacity.profiles import Profiles
from sie_cluster.gateway.pools.keeping import PoolKeeper
from sie_cluster.gateway.routing import Router
from sie_cluster.queue.subjects import DEFAULT_RESOURCE_POOL
from sie_cluster.settings import ClusterSettings
from sie_core.contracts import InferenceError, InvalidInput, PoolSpec, PoolView
from sie_core.contracts.model.config import DEFAULT_POOL

ALL_OF_A_PROFILE = 999
"""What the default pool is told to want of each configured machine profile."""


class Leasing:
    """The pools of a cluster, as `PoolLeases` has them.

    Args:
        keeper: Keeps them.
        router: Knows the models.
        profiles: The machine profiles that may be asked for.
        settings: The settings in force.
    """

    def __init__(self, keeper: PoolKeeper, router: Router, profiles: Profiles, settings: ClusterSettings) -> None:
        self._keeper, self._router, self._profiles = keeper, router, profiles
        self._configured, self._queue_pool = settings.gateway_configured_gpus, settings.pool

    async def create(self, name: str, spec: PoolSpec) -> PoolView:
        """Make a pool, or give one another spec."""
        return self._view(name, await self._keeper.create(name, self._checked(spec)))

    async def get(self, name: str) -> PoolView:
        """Describe a pool."""
        return self._view(name, await self._keeper.read())

    async def listed(self) -> Sequence[PoolView]:
        """Describe all pools."""
        pools = await self._keeper.read()
        return [self._view(name, pools) for name in (DEFAULT_RESOURCE_POOL, *sorted(pools.pools))]

    async def renew(self, name: str) -> PoolView:
        """Begin a pool's lease anew."""
        return self._view(name, await self._keeper.renew(name))

    async def delete(self, name: str) -> None:
        """End a pool."""
        await self._keeper.change(lambda before: delete(before, name))

    def _view(self, name: str, pools: Pools) -> PoolView:
        if name == DEFAULT_RESOURCE_POOL:
            spec = PoolSpec(dict.fromkeys(self._configured, ALL_OF_A_PROFILE), minimum_worker_count=0)
            free = [each for _, each in sorted(self._keeper.live().items()) if each.name not in pools.workers]
            return PoolView(name, spec, "active", workers=free, created_at=None, renewed_at=None)
        pool = pools.pools.get(name)
        if pool is None:
            raise not_found(name, pools.pools)
        state = self._keeper.state(pool)
        return PoolView(
            name,
            pool.spec,
            state,
            workers=pools.workers_of(name),
            created_at=pool.created_at,
            renewed_at=self._keeper.renewed_at(pool),
        )

    def _checked(self, spec: PoolSpec) -> PoolSpec:
        """Return a spec with the names that the cluster has for what it asks for.

        Raises:
            InferenceError: `INVALID_INPUT`: it has no such thing.
        """
        for number, model in enumerate(spec.pinned_models):
            try:
                self._router.registry.resolve(model)
            except InferenceError as error:
                if error.spec.status >= 500:
                    raise
                raise InvalidInput(error.message, param=f"pinned_models[{number}]") from None
        bundles = self._router.registry.bundles
        if spec.bundle is not None and spec.bundle not in bundles:
            message = f"`bundle` is {spec.bundle!r}; there are: {', '.join(sorted(bundles)) or 'none'}."
            raise InvalidInput(message, param="bundle")
        queue_pool = self._queue_pool if spec.queue_pool in (DEFAULT_POOL, DEFAULT_QUEUE_POOL) else spec.queue_pool
        return replace(
            spec, gpus=self._found("gpus", spec), gpu_caps=self._found("gpu_caps", spec), queue_pool=queue_pool
        )

    def _found(self, field: str, spec: PoolSpec) -> dict[str, int]:
        found: dict[str, int] = {}
        for profile, count in getattr(spec, field).items():
            try:
                found[self._profiles.find(profile)] = count
            except InferenceError as error:
                raise InvalidInput(error.message, param=f"{field}.{profile}") from None
        return found
