"""What pools there are and whose each worker is: one immutable value, and what it tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from sie_cluster.queue.subjects import ANY_PROFILE, DEFAULT_RESOURCE_POOL
from sie_core.contracts import PoolSpec, PoolState, PoolWorker

DEFAULT_BUNDLE = "default"
"""That of a worker whose settings name none."""


@dataclass(frozen=True, slots=True)
class Pool:
    """One that a client made. Times are Unix seconds of whoever wrote them."""

    name: str
    spec: PoolSpec
    created_at: float
    renewed_at: float
    until: float
    """When its lease ends."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A worker that belongs to a pool."""

    pool: str
    worker: PoolWorker
    """As it last said of itself."""
    lost_at: float | None = None
    """Since when it is not heard of; None while it is."""


@dataclass(frozen=True, slots=True)
class Pools:
    """All pools but the default one, to which every other worker belongs."""

    pools: Mapping[str, Pool] = field(default_factory=dict)
    workers: Mapping[str, Assignment] = field(default_factory=dict)
    """By the worker's name: so none is in two pools."""

    def pool_of(self, worker: str) -> str:
        """Return the resource pool of a worker."""
        assignment = self.workers.get(worker)
        return DEFAULT_RESOURCE_POOL if assignment is None else assignment.pool

    def pins_of(self, worker: str) -> tuple[str, ...]:
        """Return the models that a worker is to keep loaded for its pool."""
        pool = self.pools.get(self.pool_of(worker))
        return () if pool is None else pool.spec.pinned_models

    def workers_of(self, pool: str) -> list[PoolWorker]:
        """List the workers of a pool, by name."""
        return [each.worker for _, each in sorted(self.workers.items()) if each.pool == pool]

    def state(self, pool: Pool, now: float) -> PoolState:
        """Tell whether a pool has what it wants: a worker that is not heard of counts no more."""
        if now >= pool.until:
            return "expired"
        own = [each.worker for each in self.workers.values() if each.pool == pool.name and each.lost_at is None]
        met = all(gpus_of(own, profile) >= wanted for profile, wanted in pool.spec.gpus.items())
        return "active" if met and len(own) >= pool.spec.least_workers else "pending"


def gpus_of(workers: list[PoolWorker], profile: str) -> int:
    """Count the GPUs of a machine profile."""
    return sum(worker.gpus for worker in workers if worker.profile == profile)


def wanting(pools: Pools, now: float) -> Counter[tuple[str, str]]:
    """Count the GPUs that pools lack, by machine profile and bundle: where nobody sends a request before its pool is
    active, nothing else tells a scaler that workers are wanted.

    A pool that names no bundle waits for workers of the default one, and a worker that it wants beside those of its
    machine profiles for one GPU of any.
    """
    lacking: Counter[tuple[str, str]] = Counter()
    for pool in pools.pools.values():
        if now >= pool.until:
            continue
        own, spec = [each.worker for each in pools.workers.values() if each.pool == pool.name], pool.spec
        bundle = DEFAULT_BUNDLE if spec.bundle is None else spec.bundle
        missing = {profile: max(0, count - gpus_of(own, profile)) for profile, count in spec.gpus.items()}
        lacking.update({(profile, bundle): count for profile, count in missing.items()})
        lacking[ANY_PROFILE, bundle] += max(0, spec.least_workers - len(own) - sum(missing.values()))
    return +lacking
