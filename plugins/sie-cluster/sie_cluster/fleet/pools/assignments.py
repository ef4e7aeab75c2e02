"""Which resource pool this worker belongs to, as its sidecar last read it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from sie_cluster.fleet.pools.pools import Pools

LOOK_S = 1.0
"""Between two looks: a worker goes on with its former pool's work for so long at most."""

log = logging.getLogger(__name__)


class PoolsAway(Exception):
    """Pools cannot be read just now; the message says why and holds no token."""


ReadPools = Callable[[], Awaitable[Pools]]
"""Reads all pools; raises `PoolsAway`."""


async def no_pools() -> Pools:
    """Read nothing: every worker belongs to the default pool."""
    return Pools()


class ReadAssignments:
    """The assignments as they were last read.

    Args:
        read: Reads all pools; raises `PoolsAway`.
        on_change: Called when something else was read.
    """

    def __init__(self, read: ReadPools, on_change: Callable[[], None] = lambda: None) -> None:
        self._read, self._on_change = read, on_change
        self._pools = Pools()
        self._told: str | None = None

    def pool_of(self, worker: str) -> str:
        """Return the resource pool of a worker: the default one where it has none."""
        return self._pools.pool_of(worker)

    def pins_of(self, worker: str) -> tuple[str, ...]:
        """Return the models that a worker is to keep loaded for its pool."""
        return self._pools.pins_of(worker)

    async def look(self) -> None:
        """Read once; what was read before holds where that fails."""
        try:
            pools = await self._read()
        except PoolsAway as error:
            if str(error) != self._told:
                log.warning("resource pools cannot be read, and are tried again: %s", error)
            self._told = str(error)
            return
        self._told = None
        if pools != self._pools:
            self._pools = pools
            self._on_change()

    async def run(self) -> None:
        """Read again and again until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()
