"""Which resource pool this worker belongs to: told by the broker's store, or by a gateway that is asked."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping

from sie_cluster.fleet.pools.asking import AskedPools
from sie_cluster.fleet.pools.document import KEY, LaterVersion, decode_pools
from sie_cluster.fleet.pools.pools import Pools
from sie_cluster.programs.asking import Away
from sie_cluster.queue.subjects import DEFAULT_RESOURCE_POOL, POOLS
from sie_cluster.settings import ClusterSettings
from sie_core.contracts import Entry, QueueError, QueueTransport

FIRST_S, MOST_S = 0.5, 15.0
"""Bounds of the pause between attempts to find the store, which the first gateway makes; it doubles."""
ASK_S = 5.0
"""Between two questions to a gateway: a worker goes on with its former pool's work for so long at most."""

log = logging.getLogger(__name__)


class Assignments:
    """What a worker was last told.

    Args:
        transport: Open once `begin` is called.
        settings: Whether this worker may belong to a pool, and the gateway to ask.
        worker: Its name.
        on_change: Called when it is given to another pool, or is to keep other models.
    """

    def __init__(
        self, transport: QueueTransport, settings: ClusterSettings, worker: str, on_change: Callable[[], None]
    ) -> None:
        self._transport, self._worker, self._on_change = transport, worker, on_change
        self._asked = None if settings.gateway_url is None else AskedPools(settings.gateway_url, settings)
        self._asks = False
        self._watches = not settings.pool_admission_enabled
        """Whether nothing is left to do here: changes are told, or not wanted."""
        self._said = ""
        self.pool = DEFAULT_RESOURCE_POOL
        self.pins: tuple[str, ...] = ()
        """The models that the worker is to keep loaded for its pool."""

    async def begin(self) -> None:
        """Try once to be told; what was told before holds where that fails."""
        if self._watches:
            return
        try:
            if self._asked is not None and self._asks:
                self._take(await self._asked.read())
                return
            store = await self._transport.key_value(POOLS, make=False)
            await store.watch(self._told, KEY)
            self._watches = True
        except Away as error:
            self._say(error)
        except QueueError as error:
            if error.failure == "DENIED" and self._asked is not None and not self._asks:
                self._asks = True
                await self.begin()
            elif error.failure != "NOT_FOUND":
                self._say(error)

    async def run(self) -> None:
        """Try until changes are told; without the right to read the store, ask until cancelled."""
        pause_s = FIRST_S
        while not self._watches:
            await asyncio.sleep(random.uniform(0.75, 1.25) * (ASK_S if self._asks else pause_s))
            await self.begin()
            pause_s = min(2 * pause_s, MOST_S)

    def _told(self, entries: Mapping[str, Entry]) -> None:
        try:
            self._take(decode_pools(entries[KEY].value) if KEY in entries else Pools())
        except (ValueError, LaterVersion) as error:
            self._say(error)

    def _take(self, pools: Pools) -> None:
        self._said = ""
        told = pools.pool_of(self._worker), pools.pins_of(self._worker)
        if told != (self.pool, self.pins):
            self.pool, self.pins = told
            self._on_change()

    def _say(self, error: Exception) -> None:
        if str(error) != self._said:
            log.warning("resource pools cannot be read, and are tried again: %s", error)
        self._said = str(error)
