"""The entries of the store of resource pools, as a watch tells them, and how they are written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from sie_cluster.fleet.pools.document import KEY, LaterVersion, decode_pools, lease_key, leases_of
from sie_cluster.fleet.pools.pools import Pools
from sie_cluster.queue.subjects import POOLS
from sie_core.concurrency.tasks import within
from sie_core.contracts import Entry, InferenceError, KeyValue, QueueError, QueueTransport

TOLD_S = 5.0
"""The watch tells what was written within this time."""
FIRST_S = 1.0
"""For so long whoever was not first waits to be told what the first has written."""
ABSENT = Entry("", b"", 0)
"""In place of an entry that is not there."""

log = logging.getLogger(__name__)


class StoredPools:
    """What the store holds.

    Args:
        transport: Gives the open transport; raises `InferenceError` before the broker is reached.
    """

    def __init__(self, transport: Callable[[], QueueTransport]) -> None:
        self._transport = transport
        self._store: KeyValue | None = None
        self._opening = asyncio.Lock()
        self._said = ""
        """What the log was last told of a store that is away."""
        self.pools = Pools()
        self.entry: Entry | None = None
        """The one that `pools` was read of."""
        self.later: LaterVersion | None = None
        """Why that is not to be changed."""
        self.leases: Mapping[str, Entry] = {}
        """By the names of their pools; the value is when the lease was last renewed."""
        self.news = asyncio.Event()
        """Set with the next change, and then another one."""

    async def open(self) -> None:
        """Watch the store from now on, if it is not watched yet; return once it has told what there is.

        Raises:
            InferenceError: `QUEUE_UNAVAILABLE`.
        """
        try:
            await self._opened()
        except QueueError as error:
            raise self._unavailable(error) from error

    async def write(self, key: str, value: bytes, *, after: Entry | None = None, ttl_s: float | None = None) -> bool:
        """Write an entry, and wait until the watch tells it; False where another writer was first.

        Args:
            key: Of the entry.
            value: Its value.
            after: What it takes the place of, `ABSENT` for nothing; None: whatever is there.
            ttl_s: Its time to live.

        Raises:
            InferenceError: `QUEUE_UNAVAILABLE`: it may be written.
        """
        before = self._entry_of(key)
        try:
            store = await self._opened()
            if after is None:
                revision = await store.put(key, value, ttl_s=ttl_s)
            else:
                revision = await store.compare_and_set(key, value, after.revision or None, ttl_s=ttl_s)
            if not await self.until(lambda: self._revision(key) >= revision, TOLD_S):
                raise QueueError("UNAVAILABLE", "What was written was not told in time.")
        except QueueError as error:
            if error.failure != "CONFLICT":
                raise self._unavailable(error) from error
            await self.until(lambda: self._entry_of(key) != before, FIRST_S)
            return False
        self._said = ""
        return True

    async def until(self, holds: Callable[[], bool], most_s: float) -> bool:
        """Wait until something holds of what the watch tells; False after `most_s`."""

        async def waiting() -> None:
            while not holds():
                await self.news.wait()

        return await within(waiting(), most_s)

    async def _opened(self) -> KeyValue:
        async with self._opening:
            if self._store is None:
                store = await self._transport().key_value(POOLS)
                await store.watch(self._told)
                self._store = store
            return self._store

    def _told(self, entries: Mapping[str, Entry]) -> None:
        """Take the entries; what is broken is begun anew, as a worker must not be lost to it for good."""
        self.leases, entry = leases_of(entries), entries.get(KEY)
        if entry != self.entry:
            self.entry, self.later = entry, None
            try:
                self.pools = Pools() if entry is None else decode_pools(entry.value)
            except LaterVersion as error:
                self.later = error
            except ValueError as error:
                log.error("resource pools begin anew: %s", error)
                self.pools = Pools()
        self.news.set()
        self.news = asyncio.Event()

    def _entry_of(self, key: str) -> Entry | None:
        return self.entry if key == KEY else self.leases.get(key.removeprefix(lease_key("")))

    def _revision(self, key: str) -> int:
        entry = self._entry_of(key)
        return 0 if entry is None else entry.revision

    def _unavailable(self, error: QueueError) -> InferenceError:
        if str(error) != self._said:
            self._said = str(error)
            log.warning("the store of resource pools: %s", error)
        return InferenceError("QUEUE_UNAVAILABLE", "Resource pools cannot be reached just now; retry.")
