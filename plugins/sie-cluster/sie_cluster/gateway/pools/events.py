"""What a change of the pools did, for `sie_gateway_pool_events_total`."""

from __future__ import annotations

from collections import Counter

from sie_cluster.fleet.pools.pools import Pool, Pools


def events(before: Pools, after: Pools, now: float) -> Counter[str]:
    """Count pools `created`, `updated`, `renewed`, `deleted` and `expired`, and workers `assigned` and `released`."""
    told: Counter[str] = Counter()
    for name in before.pools.keys() | after.pools.keys():
        told.update(_of_pool(before.pools.get(name), after.pools.get(name), now))
    for worker in before.workers.keys() | after.workers.keys():
        old, new = before.workers.get(worker), after.workers.get(worker)
        moved = old is None or new is None or old.pool != new.pool
        told["released"] += moved and old is not None
        told["assigned"] += moved and new is not None
    return +told


def _of_pool(old: Pool | None, new: Pool | None, now: float) -> list[str]:
    """Name what happened to one; that a lease ended is told once, when it is removed or made anew."""
    if old is not None and (new is None or new.created_at != old.created_at):
        gone = ["expired" if now >= old.until else "deleted"]
        return gone if new is None else [*gone, "created"]
    if old is None:
        return ["created"]
    if new is None or new == old:
        return []
    return ["renewed" if new.spec == old.spec else "updated"]
