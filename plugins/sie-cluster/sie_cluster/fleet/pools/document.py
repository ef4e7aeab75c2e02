"""The pools as the value of a key of the transport's key-value store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import orjson
from pydantic import TypeAdapter

from sie_cluster.fleet.pools.pools import Pools
from sie_core.contracts import Entry

KEY: Final = "pools"
_LEASE: Final = "lease."
MOST_BYTES: Final = 512 << 10
"""Of the value: less than a message of the broker."""
_POOLS = TypeAdapter(Pools)


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
        return _POOLS.validate_python(told)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"what the store says of pools cannot be read: {error}") from None


def lease_key(name: str) -> str:
    """Name the entry that is there for as long as the lease of a pool goes on; the broker removes it by its clock."""
    return _LEASE + name


def leases_of(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Find the leases among the entries of the store, by the names of their pools."""
    return {key.removeprefix(_LEASE): entry for key, entry in entries.items() if key.startswith(_LEASE)}
