"""Changes the pools of the store by compare-and-set, and keeps what was last read of them."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping

from sie_cluster.fleet.health.workers import Workers
from sie_cluster.fleet.pools.changes import assign, not_found, sweep, too_many
from sie_cluster.fleet.pools.document import KEY, MOST_BYTES, LaterVersion, decode_pools, encode_pools
from sie_cluster.fleet.pools.pools import Pool, Pools, wanting
from sie_cluster.gateway.pools.events import events
from sie_cluster.queue.subjects import DEFAULT_RESOURCE_POOL, POOLS
from sie_core.contracts import Entry, InferenceError, KeyValue, PoolState, PoolWorker, QueueError, QueueTransport

LOOK_S = 1.0
"""Between two looks: how soon a worker that comes is given to a pool that waits, and a lease that ended is swept."""
SOON_S = 0.2
"""Between two looks for a pool that is asked for and not known: names that clients invent cost no more than that."""
MOST_TRIES = 100
"""Of one change, where other writers were first."""

log = logging.getLogger(__name__)

Change = Callable[[Pools, float], Pools]
"""Takes the pools and the time, Unix seconds."""


class PoolKeeper:
    """The pools as one gateway knows them.

    Args:
        transport: Gives the open transport; raises `InferenceError` before the broker is reached.
        workers: Those that are heard of.
        on_event: Counts what this gateway wrote; see `events`.
        clock: Unix seconds.
    """

    def __init__(
        self,
        transport: Callable[[], QueueTransport],
        workers: Workers,
        on_event: Callable[[str, int], None] = lambda event, times: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._transport, self._workers, self._on_event, self._clock = transport, workers, on_event, clock
        self._store: tuple[QueueTransport, KeyValue] | None = None
        self._looked_at = 0.0
        self._told = ""
        """What the log was last told of a store that is away."""
        self._look_to_come: asyncio.Task[None] | None = None
        self.pools = Pools()
        """As last read or written."""

    def state(self, pool: Pool) -> PoolState:
        """Tell whether a pool has what it wants, and its workers say that they serve it alone."""
        state, reports = self.pools.state(pool, self._clock()), self._workers.reports()
        own = [each.name for each in self.pools.workers_of(pool.name) if each.name in reports]
        moved = all(reports[name].resource_pool == pool.name for name in own)
        return state if moved or state == "expired" else "pending"

    def live(self) -> dict[str, PoolWorker]:
        """Return the workers that take work, by name."""
        reports = self._workers.reports().values()
        return {
            each.worker: PoolWorker(
                each.worker, each.profile, each.bundle, each.pool, max(1, each.gpu_count), each.gpu_type, each.url
            )
            for each in reports
            if each.up and not each.draining
        }

    def leased_gpus(self) -> Mapping[tuple[str, str], int]:
        """Count the GPUs that pools have or wait for, by machine profile and bundle; every gateway tells the same."""
        counted = wanting(self.pools, self._clock())
        for each in self.pools.workers.values():
            counted[each.worker.profile, each.worker.bundle] += each.worker.gpus
        return counted

    async def leased(self, name: str) -> Pool:
        """Return the pool that a request names, which another gateway may have made a moment ago.

        Raises:
            InferenceError: `POOL_NOT_FOUND`, `QUEUE_UNAVAILABLE`.
        """
        if not self._is_there(name):
            await self._look_anew()
        if not self._is_there(name):
            raise not_found(name, self.pools.pools)
        return self.pools.pools[name]

    async def _look_anew(self) -> None:
        """Wait for a look that begins from now on; all who wait share it.

        Raises:
            InferenceError: `QUEUE_UNAVAILABLE`.
        """
        if self._look_to_come is None:
            self._look_to_come = asyncio.create_task(self._look_soon())
            self._look_to_come.add_done_callback(lambda look: look.cancelled() or look.exception())
        await asyncio.shield(self._look_to_come)

    async def _look_soon(self) -> None:
        await asyncio.sleep(self._looked_at + SOON_S - time.monotonic())
        self._look_to_come = None
        await self.change(lambda pools, now: pools)

    async def change(self, change: Change) -> Pools:
        """Change the pools; leases that ended are swept and workers assigned with it.

        Raises:
            InferenceError: What `change` raises; `TOO_MANY_POOLS`; `QUEUE_UNAVAILABLE`: it may have been written, or a
                later release keeps the pools, and nothing was.
        """
        try:
            for _ in range(MOST_TRIES):
                if await self._try(change):
                    self._told = ""
                    return self.pools
                await asyncio.sleep(random.uniform(0, 0.02))
        except QueueError as error:
            self._store = None
            if str(error) != self._told:
                self._told = str(error)
                log.warning("the store of resource pools: %s", error)
            raise InferenceError("QUEUE_UNAVAILABLE", "Resource pools cannot be reached just now; retry.") from error
        except LaterVersion as error:
            message = f"This gateway cannot take part: {error}. Ask a gateway of the release that wrote it."
            raise InferenceError("QUEUE_UNAVAILABLE", message) from error
        raise InferenceError("QUEUE_UNAVAILABLE", "Other gateways change resource pools all the time; retry.")

    async def run(self) -> None:
        """Look again and again until cancelled."""
        told = False
        while True:
            try:
                await self.change(lambda pools, now: pools)
            except InferenceError as error:
                log.debug("resource pools wait: %s", error)
                if isinstance(error.__cause__, LaterVersion) and not told:
                    log.error("%s", error)
                    told = True
            else:
                told = False
            await asyncio.sleep(LOOK_S)

    async def _try(self, change: Change) -> bool:
        """Change what the store holds now; False where another writer was first."""
        store = await self._opened()
        entry = await store.get(KEY)
        self._looked_at = time.monotonic()
        before, now = _read(entry), self._clock()
        after = assign(sweep(change(before, now), now), self.live(), now)
        if after != before:
            value = encode_pools(after)
            if len(value) > MOST_BYTES:
                raise too_many()
            try:
                await store.compare_and_set(KEY, value, None if entry is None else entry.revision)
            except QueueError as error:
                if error.failure == "CONFLICT":
                    return False
                raise
            for event, times in events(before, after, now).items():
                self._on_event(event, times)
        self.pools = after
        return True

    async def _opened(self) -> KeyValue:
        transport = self._transport()
        if self._store is None or self._store[0] is not transport:
            self._store = transport, await transport.key_value(POOLS)
        return self._store[1]

    def _is_there(self, name: str) -> bool:
        pool = self.pools.pools.get(name)
        return pool is not None and self._clock() < pool.until


def is_leased(name: str | None) -> bool:
    """Whether a request asks for capacity that somebody leased."""
    return name is not None and name != DEFAULT_RESOURCE_POOL


def _read(entry: Entry | None) -> Pools:
    """Read what the store holds; what is broken is begun anew, as a worker must not be lost to it for good.

    Raises:
        LaterVersion: It is not broken, and not this release's to change.
    """
    if entry is None:
        return Pools()
    try:
        return decode_pools(entry.value)
    except ValueError as error:
        log.error("resource pools begin anew: %s", error)
        return Pools()
