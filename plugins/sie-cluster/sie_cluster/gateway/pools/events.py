"""What a change of the pools did, for `sie_gateway_pool_events_total`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from sie_cluster.fleet.pools.pools import Pool, Pools


def events(before: Pools, after: Pools, ended: Collection[str]) -> Counter[str]:
    """Count pools `created`, `updated`, `deleted` and `expired`, and workers `assigned` and `released`.

    Args:
        before: The pools that were there.
        after: Those that are written.
        ended: Names of pools whose lease had ended.
    """
    told: Counter[str] = Counter()
    for name in before.pools.keys() | after.pools.keys():
        told.update(_of_pool(before.pools.get(name), after.pools.get(name), name in ended))
    for worker in before.workers.keys() | after.workers.keys():
        old, new = before.workers.get(worker), after.workers.get(worker)
        moved = old is None or new is None or old.pool != new.pool
        told["released"] += moved and old is not None
        told["assigned"] += moved and new is not None
    return +told


def _of_pool(old: Pool | None, new: Pool | None, ended: bool) -> list[str]:
    """Name what happened to one; that a lease ended is told once, when it is removed or made anew."""
    if old is None:
        return [] if new is None else ["created"]
    if new is None:
        return ["expired" if ended else "deleted"]
    if new.created_at != old.created_at:
        return ["expired", "created"]
    return [] if new == old else ["updated"]
