"""Changes the pools of the store by compare-and-set.

A lease is an entry of its own, which the broker removes by its clock unless it is written again. No clock of a gateway
is compared with that of another.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from sie_cluster.fleet.health.workers import Workers
from sie_cluster.fleet.pools.changes import create, not_found, settle, too_many
from sie_cluster.fleet.pools.document import KEY, MOST_BYTES, encode_pools, lease_key
from sie_cluster.fleet.pools.pools import Pool, Pools, has_enough, wanting
from sie_cluster.gateway.pools.stored import ABSENT, StoredPools
from sie_cluster.queue.subjects import DEFAULT_RESOURCE_POOL
from sie_core.concurrency.tasks import within
from sie_core.contracts import InferenceError, PoolSpec, PoolState, PoolWorker, QueueTransport

LOOK_S = 1.0
"""How soon a worker that comes is given to a pool that waits; no look asks the broker."""
SOON_S = 0.5
"""How long a request waits for a pool that another gateway may have made a moment ago."""
MOST_TRIES = 100
"""Of one change, where other writers were first."""
ENDED_S = 60.0
"""How long a pool is listed as expired before it is removed."""
LOST_S = 30.0
"""How long a worker that is not heard of keeps its place: a restart takes less."""

log = logging.getLogger(__name__)

Change = Callable[[Pools], Pools]


class PoolKeeper:
    """The pools as one gateway knows them.

    Args:
        transport: Gives the open transport; raises `InferenceError` before the broker is reached.
        workers: Those that are heard of.
        lease_s: How long a lease goes on that is not renewed.
        on_event: Counts what this gateway wrote; see `_events`.
        clock: Monotonic seconds.
        wall: Unix seconds, which clients are shown.
    """

    def __init__(
        self,
        transport: Callable[[], QueueTransport],
        workers: Workers,
        lease_s: float,
        on_event: Callable[[str, int], None] = lambda event, times: None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._stored, self._workers, self._lease_s = StoredPools(transport), workers, lease_s
        self._on_event, self._wall = on_event, wall
        self._ended, self._lost = _Since(clock), _Since(clock)

    @property
    def pools(self) -> Pools:
        """The pools as last told."""
        return self._stored.pools

    def state(self, pool: Pool) -> PoolState:
        """Tell whether a pool has what it wants, and its workers say that they serve it alone."""
        if pool.name not in self._stored.leases:
            return "expired"
        live, reports = self.live(), self._workers.reports()
        own = [each for each in self.pools.workers_of(pool.name) if each.name in live]
        moved = all(reports[each.name].resource_pool == pool.name for each in own)
        return "active" if moved and has_enough(pool.spec, own) else "pending"

    def renewed_at(self, pool: Pool) -> float:
        """Return when a lease was last renewed, in Unix seconds of the gateway that did."""
        lease = self._stored.leases.get(pool.name)
        return pool.created_at if lease is None else float(lease.value)

    def live(self) -> dict[str, PoolWorker]:
        """Return the workers that take work, by name."""
        reports = self._workers.reports().values()
        return {
            each.worker: PoolWorker(
                each.worker,
                each.profile,
                each.bundle,
                queue_pool=each.pool,
                gpus=max(1, each.gpu_count),
                gpu=each.gpu_type,
                url=each.url,
            )
            for each in reports
            if each.up and not each.draining
        }

    def leased_gpus(self) -> Mapping[tuple[str, str], int]:
        """Count the GPUs that pools have or wait for, by machine profile and bundle; every gateway tells the same."""
        counted = wanting(self.pools, self._stored.leases)
        for each in self.pools.workers.values():
            counted[each.worker.profile, each.worker.bundle] += each.worker.gpus
        return counted

    async def leased(self, name: str) -> Pool:
        """Return the pool that a request names, which another gateway may have made a moment ago.

        Raises:
            InferenceError: `POOL_NOT_FOUND`, `QUEUE_UNAVAILABLE`.
        """
        if not self._is_leased(name):
            await self._stored.open()
            await self._stored.until(lambda: self._is_leased(name), SOON_S)
        if not self._is_leased(name):
            raise not_found(name, self.pools.pools)
        return self.pools.pools[name]

    async def read(self) -> Pools:
        """Return the pools, once they were told.

        Raises:
            InferenceError: `QUEUE_UNAVAILABLE`.
        """
        await self._stored.open()
        return self.pools

    async def create(self, name: str, spec: PoolSpec) -> Pools:
        """Make a pool, or give one another spec; its lease begins anew.

        Raises:
            InferenceError: As `changes.create` and `change`.
        """
        before, anew, at = await self.read(), name not in self._stored.leases, self._wall()

        def made(pools: Pools) -> Pools:
            return create(pools, name, spec, at, anew=anew)

        made(before)  # what is refused gets no lease
        # The lease comes first: without one, the pool would be taken to have ended.
        await self._stored.write(lease_key(name), str(at).encode(), ttl_s=self._lease_s)
        after = await self.change(made)
        if after.pools[name] == before.pools.get(name):
            self._on_event("renewed", 1)
        return after

    async def renew(self, name: str) -> Pools:
        """Begin a pool's lease anew; the default pool has none.

        Raises:
            InferenceError: `POOL_NOT_FOUND`, also where the lease has ended; `QUEUE_UNAVAILABLE`.
        """
        if name == DEFAULT_RESOURCE_POOL:
            return await self.read()
        await self.leased(name)
        await self._stored.write(lease_key(name), str(self._wall()).encode(), ttl_s=self._lease_s)
        self._on_event("renewed", 1)
        return self.pools

    async def change(self, change: Change = lambda pools: pools) -> Pools:
        """Change the pools; workers are assigned with it, and those of leases that ended are free.

        Raises:
            InferenceError: What `change` raises; `TOO_MANY_POOLS`; `QUEUE_UNAVAILABLE`: it may have been written, or a
                later release keeps the pools, and nothing was.
        """
        for _ in range(MOST_TRIES):
            before, entry = await self.read(), self._stored.entry
            if (later := self._stored.later) is not None:
                message = f"This gateway cannot take part: {later}. Ask a gateway of the release that wrote it."
                raise InferenceError("QUEUE_UNAVAILABLE", message)
            ended = before.pools.keys() - self._stored.leases.keys()
            after = self._settled(change(before))
            if after == before:
                return before
            value = encode_pools(after)
            if len(value) > MOST_BYTES:
                raise too_many()
            if await self._stored.write(KEY, value, after=entry or ABSENT):
                for event, times in _events(before, after, ended).items():
                    self._on_event(event, times)
                return after
        raise InferenceError("QUEUE_UNAVAILABLE", "Other gateways change resource pools all the time; retry.")

    async def run(self) -> None:
        """Settle the pools with each change, and from time to time, until cancelled."""
        said = ""
        while True:
            news = self._stored.news
            try:
                await self.change()
                said = ""
            except InferenceError as error:
                level = logging.ERROR if self._stored.later is not None and str(error) != said else logging.DEBUG
                log.log(level, "resource pools wait: %s", error)
                said = str(error)
            await within(news.wait(), LOOK_S)

    def _settled(self, pools: Pools) -> Pools:
        live, leases = self.live(), self._stored.leases
        forgotten = self._ended.beyond(pools.pools.keys() - leases.keys(), ENDED_S)
        lost = self._lost.beyond(pools.workers.keys() - live.keys(), LOST_S)
        return settle(pools, leases, live, forgotten=forgotten, lost=lost)

    def _is_leased(self, name: str) -> bool:
        return name in self.pools.pools and name in self._stored.leases


class _Since:
    """For how long something holds of some names, as this process counts time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}

    def beyond(self, names: Iterable[str], most_s: float) -> set[str]:
        """Take of whom it holds now; return of whom for `most_s` or longer."""
        now = self._clock()
        self._since = {name: self._since.get(name, now) for name in names}
        return {name for name, since in self._since.items() if now - since >= most_s}


def is_leased(name: str | None) -> bool:
    """Whether a request asks for capacity that somebody leased."""
    return name is not None and name != DEFAULT_RESOURCE_POOL


def _events(before: Pools, after: Pools, ended: Collection[str]) -> Counter[str]:
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
