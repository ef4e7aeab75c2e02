"""Every change of the pools as a pure function: a value and the time in, another value out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from sie_cluster.fleet.pools.pools import Assignment, Pool, Pools, gpus_of
from sie_cluster.queue.subjects import DEFAULT_RESOURCE_POOL
from sie_core.contracts import InferenceError, PoolSpec, PoolWorker

MOST_POOLS: Final = 256
"""All of them are one value of the key-value store, which every sidecar reads."""
EXPIRED_KEPT_S: Final = 60.0
"""How long a pool is told as expired before it is removed."""
LOST_S: Final = 30.0
"""How long a worker that is not heard of keeps its place: a restart takes less."""


def create(pools: Pools, name: str, spec: PoolSpec, now: float, lease_s: float) -> Pools:
    """Make a pool, or give one another spec; its lease begins anew.

    Raises:
        InferenceError: `FORBIDDEN` for the default pool, `TOO_MANY_POOLS`.
    """
    refuse_default(name, "made nor changed")
    before = pools.pools.get(name)
    if before is None and len(pools.pools) >= MOST_POOLS:
        raise too_many()
    since = now if before is None or now >= before.until else before.created_at
    return replace(pools, pools={**pools.pools, name: Pool(name, spec, since, now, now + lease_s)})


def renew(pools: Pools, name: str, now: float, lease_s: float) -> Pools:
    """Begin a pool's lease anew; the default pool has none.

    Raises:
        InferenceError: `POOL_NOT_FOUND`, also where the lease has ended.
    """
    if name == DEFAULT_RESOURCE_POOL:
        return pools
    pool = pools.pools.get(name)
    if pool is None or now >= pool.until:
        raise not_found(name, pools.pools)
    return replace(pools, pools={**pools.pools, name: replace(pool, renewed_at=now, until=now + lease_s)})


def delete(pools: Pools, name: str) -> Pools:
    """Remove a pool; its workers are free.

    Raises:
        InferenceError: `FORBIDDEN` for the default pool, `POOL_NOT_FOUND`.
    """
    refuse_default(name, "deleted")
    if name not in pools.pools:
        raise not_found(name, pools.pools)
    return _without(pools, {name}, {name})


def sweep(pools: Pools, now: float) -> Pools:
    """Free the workers of pools whose lease has ended, and remove those that ended a while ago."""
    ended = {pool.name for pool in pools.pools.values() if now >= pool.until}
    gone = {name for name in ended if now >= pools.pools[name].until + EXPIRED_KEPT_S}
    return _without(pools, gone, ended) if gone or any(each.pool in ended for each in pools.workers.values()) else pools


def assign(pools: Pools, live: Mapping[str, PoolWorker], now: float) -> Pools:
    """Give pools the workers that they want, oldest pools first; a worker stays where it is wanted.

    Args:
        pools: After `sweep`.
        live: The workers that are heard of and take work, by name.
        now: Unix seconds.
    """
    own = _kept(pools, live, now)
    served = sorted(
        (pool for pool in pools.pools.values() if now < pool.until), key=lambda each: (each.created_at, each.name)
    )
    # A worker that comes may free another one, which an older pool wants.
    for _ in range(len(served) + 1):
        before, own = own, _filled(served, own, live)
        if own == before:
            break
    return pools if own == pools.workers else replace(pools, workers=own)


def choose(spec: PoolSpec, workers: Iterable[PoolWorker]) -> list[PoolWorker]:
    """Choose what a pool takes of workers, those that come first: first for its GPUs, then for its number."""
    fit = [worker for worker in workers if is_eligible(spec, worker)]
    chosen: list[PoolWorker] = []
    for worker in fit:
        if gpus_of(chosen, worker.profile) < spec.gpus.get(worker.profile, 0) and _within_cap(spec, chosen, worker):
            chosen.append(worker)
    for worker in fit:
        if len(chosen) < spec.least_workers and worker not in chosen and _within_cap(spec, chosen, worker):
            chosen.append(worker)
    return chosen


def is_eligible(spec: PoolSpec, worker: PoolWorker) -> bool:
    """Whether a pool may have a worker at all."""
    profiles = spec.gpus.keys() | spec.gpu_caps.keys()
    return (
        (not profiles or worker.profile in profiles)
        and spec.bundle in (None, worker.bundle)
        and spec.queue_pool in (None, worker.queue_pool)
    )


def not_found(name: str, known: Iterable[str]) -> InferenceError:
    """Make the error of a pool that there is not."""
    others = ", ".join([*sorted(known)[:20], DEFAULT_RESOURCE_POOL])
    message = f"There is no resource pool {name[:128]!r}, or its lease has ended; there are: {others}. POST /v1/pools"
    return InferenceError("POOL_NOT_FOUND", f"{message} makes one.", param="X-SIE-Pool", details={"pool": name[:128]})


def refuse_default(name: str, what: str) -> None:
    """Refuse to change the default pool.

    Raises:
        InferenceError: `FORBIDDEN`: it is that.
    """
    if name == DEFAULT_RESOURCE_POOL:
        message = f"The pool {name!r} is neither {what}: it holds every worker that no other pool has, and never ends."
        raise InferenceError("FORBIDDEN", message.replace("neither deleted", "not deleted"), param="name")


def too_many() -> InferenceError:
    """Make the error of one pool more than the store takes."""
    message = (
        f"There are as many resource pools as a cluster keeps, {MOST_POOLS} or half a megabyte of them; delete one."
    )
    return InferenceError("TOO_MANY_POOLS", message)


def _kept(pools: Pools, live: Mapping[str, PoolWorker], now: float) -> dict[str, Assignment]:
    """Return the assignments to pools that are there, with what workers say now, less those lost for long."""
    kept: dict[str, Assignment] = {}
    for name, each in pools.workers.items():
        pool = pools.pools.get(each.pool)
        if pool is None or now >= pool.until:
            continue
        if name in live:
            kept[name] = Assignment(each.pool, live[name])
        elif each.lost_at is None:
            kept[name] = replace(each, lost_at=now)
        elif now - each.lost_at < LOST_S:
            kept[name] = each
    return kept


def _filled(served: list[Pool], own: Mapping[str, Assignment], live: Mapping[str, PoolWorker]) -> dict[str, Assignment]:
    """Free what each pool wants no more, then give each what is free."""
    kept: dict[str, Assignment] = {}
    for pool in served:
        mine = [each.worker for _, each in sorted(own.items()) if each.pool == pool.name]
        kept |= {worker.name: own[worker.name] for worker in choose(pool.spec, mine)}
    for pool in served:
        free = [worker for name, worker in sorted(live.items()) if name not in kept]
        mine = [each.worker for _, each in sorted(kept.items()) if each.pool == pool.name]
        chosen = choose(pool.spec, [*mine, *free])
        kept |= {worker.name: Assignment(pool.name, worker) for worker in chosen if worker.name not in kept}
    return kept


def _within_cap(spec: PoolSpec, chosen: list[PoolWorker], worker: PoolWorker) -> bool:
    cap = spec.gpu_caps.get(worker.profile)
    return cap is None or gpus_of(chosen, worker.profile) + worker.gpus <= cap


def _without(pools: Pools, gone: set[str], released: set[str]) -> Pools:
    """Remove pools, and free the workers of `released`."""
    return Pools(
        {name: pool for name, pool in pools.pools.items() if name not in gone},
        {name: each for name, each in pools.workers.items() if each.pool not in released},
    )
