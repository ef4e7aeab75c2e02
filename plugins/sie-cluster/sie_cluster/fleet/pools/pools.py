"""What pools there are and whose each worker is: one immutable value, and what it tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from sie_cluster.queue.subjects import ANY_PROFILE, DEFAULT_RESOURCE_POOL
from sie_core.contracts import PoolSpec, PoolWorker

DEFAULT_BUNDLE = "default"
"""That of a worker whose settings name none."""


@dataclass(frozen=True, slots=True)
class Pool:
    """One that a client made. Whether its lease goes on is told by another entry of the store, `lease_key`."""

    name: str
    spec: PoolSpec
    created_at: float
    """Unix seconds of the gateway that made it: shown to clients, and compared with no other clock."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A worker that belongs to a pool."""

    pool: str
    worker: PoolWorker
    """As it last said of itself."""


@dataclass(frozen=True, slots=True)
class Pools:
    """All pools but the default one, to which every other worker belongs."""

    pools: Mapping[str, Pool] = field(default_factory=dict)
    """By name, the oldest first."""
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


def has_enough(spec: PoolSpec, workers: Collection[PoolWorker]) -> bool:
    """Whether workers are what a pool wants."""
    met = all(gpus_of(workers, profile) >= wanted for profile, wanted in spec.gpus.items())
    return met and len(workers) >= spec.least_workers


def gpus_of(workers: Iterable[PoolWorker], profile: str) -> int:
    """Count the GPUs of a machine profile."""
    return sum(worker.gpus for worker in workers if worker.profile == profile)


def wanting(pools: Pools, leased: Collection[str]) -> Counter[tuple[str, str]]:
    """Count the GPUs that leased pools lack, by machine profile and bundle: where nobody sends a request before its
    pool is active, nothing else tells a scaler that workers are wanted.

    A pool that names no bundle waits for workers of the default one, and a worker that it wants beside those of its
    machine profiles for one GPU of any.
    """
    lacking: Counter[tuple[str, str]] = Counter()
    for pool in pools.pools.values():
        if pool.name not in leased:
            continue
        own, spec = pools.workers_of(pool.name), pool.spec
        bundle = DEFAULT_BUNDLE if spec.bundle is None else spec.bundle
        missing = {profile: max(0, count - gpus_of(own, profile)) for profile, count in spec.gpus.items()}
        lacking.update({(profile, bundle): count for profile, count in missing.items()})
        lacking[ANY_PROFILE, bundle] += max(0, spec.least_workers - len(own) - sum(missing.values()))
    return +lacking
