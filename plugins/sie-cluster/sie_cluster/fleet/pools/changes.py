"""Every change of the pools as a pure function: a value in, another value out. None of them knows a clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from sie_cluster.fleet.pools.pools import Assignment, Pool, Pools, gpus_of
from sie_cluster.queue.subjects import DEFAULT_RESOURCE_POOL
from sie_core.contracts import InferenceError, PoolSpec, PoolWorker

MOST_POOLS: Final = 256
"""All of them are one value of the key-value store, which every sidecar reads."""


def create(pools: Pools, name: str, spec: PoolSpec, at: float, *, anew: bool = False) -> Pools:
    """Make a pool, or give one another spec.

    Args:
        pools: All of them.
        name: Of the pool.
        spec: What it wants.
        at: Unix seconds, to be shown.
        anew: Whether a pool of that name is another one: its lease has ended.

    Raises:
        InferenceError: `FORBIDDEN` for the default pool, `TOO_MANY_POOLS`.
    """
    refuse_default(name, "made nor changed")
    before = pools.pools.get(name)
    if before is None and len(pools.pools) >= MOST_POOLS:
        raise too_many()
    if before is not None and not anew:
        return replace(pools, pools={**pools.pools, name: replace(before, spec=spec)})
    others = {each: pool for each, pool in pools.pools.items() if each != name}
    return replace(pools, pools={**others, name: Pool(name, spec, at)})


def delete(pools: Pools, name: str) -> Pools:
    """Remove a pool; its workers are free.

    Raises:
        InferenceError: `FORBIDDEN` for the default pool, `POOL_NOT_FOUND`.
    """
    refuse_default(name, "deleted")
    if name not in pools.pools:
        raise not_found(name, pools.pools)
    workers = {worker: each for worker, each in pools.workers.items() if each.pool != name}
    return Pools({each: pool for each, pool in pools.pools.items() if each != name}, workers)


def settle(
    pools: Pools,
    leased: Collection[str],
    live: Mapping[str, PoolWorker],
    *,
    forgotten: Collection[str] = (),
    lost: Collection[str] = (),
) -> Pools:
    """Give pools the workers that they want, oldest pools first; a worker stays where it is wanted.

    Args:
        pools: All of them.
        leased: Names of those whose lease goes on; the workers of others are free.
        live: The workers that are heard of and take work, by name.
        forgotten: Pools whose lease has ended for long: they are removed.
        lost: Workers that are not heard of for long: they lose their places.
    """
    kept = {name: pool for name, pool in pools.pools.items() if name in leased or name not in forgotten}
    served = [pool for pool in kept.values() if pool.name in leased]
    own = {
        name: Assignment(each.pool, live.get(name, each.worker))
        for name, each in pools.workers.items()
        if each.pool in kept and each.pool in leased and (name in live or name not in lost)
    }
    # A worker that comes may free another one, which an older pool wants.
    for _ in range(len(served) + 1):
        before, own = own, _filled(served, own, live)
        if own == before:
            break
    settled = Pools(kept, own)
    return pools if settled == pools else settled


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
