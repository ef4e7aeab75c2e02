"""The pools as the value of a key of the transport's key-value store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

import orjson

from sie_cluster.fleet.pools.pools import Assignment, Pool, Pools
from sie_core.contracts import Entry, PoolSpec, PoolWorker

KEY: Final = "pools"
_LEASE: Final = "lease."
MOST_BYTES: Final = 512 << 10
"""Of the value: less than a message of the broker."""


class LaterVersion(Exception):
    """A later release wrote the value, and it may say more than this one knows."""


def encode_pools(pools: Pools) -> bytes:
    """Write the value."""
    return orjson.dumps({"version": 1, "pools": pools.pools, "workers": pools.workers})


def decode_pools(value: bytes) -> Pools:
    """Read it.

    Raises:
        LaterVersion: It is of another version.
        ValueError: It is none.
    """
    try:
        told = orjson.loads(value)
        if told["version"] != 1:
            raise LaterVersion(f"resource pools are kept in version {told['version']!r:.40}, which is not known here")
        pools = {name: _pool(name, row) for name, row in told["pools"].items()}
        return Pools(pools, {name: _assignment(name, row) for name, row in told["workers"].items()})
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"what the store says of pools cannot be read: {error}") from None


def lease_key(name: str) -> str:
    """Name the entry that is there for as long as the lease of a pool goes on; the broker removes it by its clock."""
    return _LEASE + name


def leases_of(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Find the leases among the entries of the store, by the names of their pools."""
    return {key.removeprefix(_LEASE): entry for key, entry in entries.items() if key.startswith(_LEASE)}


def describe_spec(spec: PoolSpec) -> dict[str, Any]:
    """Write a spec as JSON takes it."""
    return asdict(spec)


def read_spec(row: dict[str, Any]) -> PoolSpec:
    """Read a spec of `describe_spec`."""
    return PoolSpec(
        gpus={str(profile): int(count) for profile, count in row["gpus"].items()},
        gpu_caps={str(profile): int(count) for profile, count in row["gpu_caps"].items()},
        bundle=row["bundle"],
        queue_pool=row["queue_pool"],
        minimum_worker_count=row["minimum_worker_count"],
        pinned_models=tuple(map(str, row["pinned_models"])),
    )


def _pool(name: str, row: dict[str, Any]) -> Pool:
    return Pool(name, read_spec(row["spec"]), float(row["created_at"]))


def _assignment(name: str, row: dict[str, Any]) -> Assignment:
    told = row["worker"]
    worker = PoolWorker(
        name,
        told["profile"],
        told["bundle"],
        queue_pool=told["queue_pool"],
        gpus=int(told["gpus"]),
        gpu=told["gpu"],
        url=told["url"],
    )
    return Assignment(str(row["pool"]), worker)
