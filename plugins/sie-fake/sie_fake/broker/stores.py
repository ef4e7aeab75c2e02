"""The stores of the broker inside the process: key-value stores with watches, and journals."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sie_core.contracts import Entry, Journal, KeyValue, QueueError, Reading, Record
from sie_fake.broker.patterns import matches

MAX_PAYLOAD = 1 << 20
"""Bytes of a message, as many as a broker takes by default."""
_KEY = re.compile(r"[\w=-]+(\.[\w=-]+)*", re.ASCII)

log = logging.getLogger(__name__)


def call(callback: Callable[[Any], None], value: Any) -> None:
    """Call a callback of a user of the transport; an exception is logged."""
    try:
        callback(value)
    except Exception:
        log.exception("a callback of the queue failed")


class Store(KeyValue):
    """A key-value store inside the process."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._revisions = itertools.count(1)
        self.watches: list[Watch] = []

    async def get(self, key: str) -> Entry | None:
        """Return an entry, None if it does not exist."""
        return self._entries.get(checked_key(key))

    async def put(self, key: str, value: bytes, *, ttl_s: float | None = None) -> int:
        """Write, whatever is there; return the revision."""
        entry = self._entries[checked_key(key)] = Entry(key, value, next(self._revisions))
        if ttl_s is not None:
            asyncio.get_running_loop().call_later(math.ceil(ttl_s), self._end, entry)
        self._tell(key)
        return entry.revision

    async def compare_and_set(self, key: str, value: bytes, revision: int | None, *, ttl_s: float | None = None) -> int:
        """Write if the entry has this revision; None means that the entry must not exist."""
        there = await self.get(key)
        if (None if there is None else there.revision) != revision:
            raise QueueError("CONFLICT", f"The entry {key!r} is no longer at revision {revision}; read it again.")
        return await self.put(key, value, ttl_s=ttl_s)

    async def delete(self, key: str) -> None:
        """Remove an entry."""
        if self._entries.pop(checked_key(key), None) is not None:
            self._tell(key)

    async def watch(self, on_entries: Callable[[Mapping[str, Entry]], None], keys: str = ">") -> Watch:
        """Take the entries whose keys match a pattern, now and after each change."""
        watch = Watch(self, keys, on_entries)
        self.watches.append(watch)
        watch.tell()
        return watch

    def matching(self, keys: str) -> dict[str, Entry]:
        """Return the entries whose keys match a pattern."""
        return {key: entry for key, entry in self._entries.items() if matches(keys, key)}

    def _end(self, entry: Entry) -> None:
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]
            self._tell(entry.key)

    def _tell(self, key: str) -> None:
        for watch in self.watches:
            if matches(watch.subject, key):
                asyncio.get_running_loop().call_soon(watch.tell)


@dataclass(eq=False, slots=True)
class Watch:
    """One watch of a store."""

    store: Store
    subject: str
    take: Callable[[Mapping[str, Entry]], None]

    def tell(self) -> None:
        """Hand over the entries as they are now, unless the watch was closed."""
        if self in self.store.watches:
            call(self.take, self.store.matching(self.subject))

    async def close(self) -> None:
        """Take no more."""
        if self in self.store.watches:
            self.store.watches.remove(self)


class StoredJournal(Journal):
    """A journal inside the process."""

    def __init__(self, first: int) -> None:
        self._records: dict[str, Record] = {}
        self._last, self._created = first - 1, uuid.uuid4().hex

    async def append(self, key: str, payload: bytes, *, after: int) -> int:
        """Add a message if the last one is number `after`."""
        checked_key(key)
        if len(payload) > MAX_PAYLOAD:
            raise QueueError("TOO_LARGE", f"A message of {len(payload)} bytes is beyond {MAX_PAYLOAD}.")
        if after != self._last:
            raise QueueError("CONFLICT", f"The journal is at {self._last}, not at {after}; read on.")
        self._last += 1
        self._records.pop(key, None)  # the dictionary stays in the order of the messages
        self._records[key] = Record(key, payload, self._last)
        return self._last

    async def read(self, after: int = 0) -> Reading:
        """Return the last message of each key that has one beyond number `after`."""
        beyond = tuple(each for each in self._records.values() if each.sequence > after)
        return Reading(self._last, beyond, self._created)


def checked_key(key: str) -> str:
    """Return a key that every store can hold.

    Raises:
        ValueError: It is another.
    """
    if not _KEY.fullmatch(key):
        raise ValueError(f"{key!r} is no key: tokens of letters, digits, '_', '-' and '=', joined by '.'")
    return key
