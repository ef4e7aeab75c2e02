"""Watches of key-value buckets: the broker republishes whatever a bucket stores, to subjects that can be subscribed to.

A consumer for each watch would cost the broker a heartbeat each, and its user would need the right to create consumers.
A user with this right can have the broker deliver stored messages to any subject, even to one that it may not send to.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping

from nats.aio.subscription import Subscription as NatsSubscription

from sie_core.contracts import Entry, QueueError, Subscription
from sie_nats.client import Arrived
from sie_nats.connection import Connection

GONE = ("KV-Operation", "Nats-Marker-Reason")
"""Headers of a message that says that an entry was deleted, or ended."""
ANEW_S = (45.0, 75.0)
"""Bounds of the time after which all is read anew, in seconds: between brokers a republished message can be lost."""
AGAIN_S = (0.5, 2.0)
"""Bounds of the pause after a reading that failed, in seconds."""

log = logging.getLogger("sie_nats")

Found = tuple[Entry | None, int]
"""An entry, None if it is gone, and the number of the last message of its subject, 0 if there is none."""
Find = Callable[[str], Awaitable[Mapping[str, Found]]]


def told_subject(store: str, keys: str) -> str:
    """Name the subjects to which the broker republishes what a store holds under some keys."""
    return f"sie.kv.{store}.{keys}"


class JetStreamWatch(Subscription):
    """One watch.

    Args:
        connection: The connection.
        store: The name of the store.
        find: Reads the last message of each key that matches a pattern.
        take: Takes the entries.
        keys: The pattern.
    """

    def __init__(
        self, connection: Connection, store: str, find: Find, take: Callable[[Mapping[str, Entry]], None], keys: str
    ) -> None:
        self.subject = keys
        self._connection, self._store, self._find, self._take = connection, store, find, take
        self._subscription: NatsSubscription | None = None
        self._found: dict[str, Found] = {}
        self._reading = False
        self._told: Mapping[str, Entry] | None = None
        self._anew = asyncio.Event()
        self.closed = False

    async def open(self) -> None:
        """Subscribe and read; return once it was told what there is.

        Raises:
            QueueError: The broker does not answer, or refuses.
        """
        subject = told_subject(self._store, self.subject)
        self._subscription = await self._connection.subscribe(subject, self._arrived)
        try:
            await self._read()
        except BaseException:
            await self._subscription.unsubscribe()
            raise
        self._connection.run(self._run())

    def renew(self) -> None:
        """Read all anew: the connection is another, and messages were missed."""
        self._anew.set()

    async def close(self) -> None:
        """Take no more."""
        if not self.closed:
            self.closed = True
            self._anew.set()
            if self._subscription is not None and self._connection.state == "connected":
                await self._subscription.unsubscribe()

    async def _run(self) -> None:
        while not self.closed:
            try:
                async with asyncio.timeout(random.uniform(*ANEW_S)):
                    await self._anew.wait()
            except TimeoutError:
                pass
            self._anew.clear()
            try:
                await self._read()
            except Exception as error:  # without this task, what is missed once would stay so
                level = logging.DEBUG if isinstance(error, QueueError) else logging.ERROR
                log.log(level, "the store %s is read again: %r", self._store, error)
                await asyncio.sleep(random.uniform(*AGAIN_S))
                self._anew.set()

    async def _read(self) -> None:
        """Begin with nothing: numbers begin again if a broker lost what it stored. What comes meanwhile counts."""
        self._found, self._reading = {}, True
        for key, found in (await self._find(self.subject)).items():
            self._add(key, found)
        self._reading = False
        self._tell()

    def _arrived(self, message: Arrived) -> None:
        headers = message.headers()
        key, number = message.subject.removeprefix(told_subject(self._store, "")), int(headers["Nats-Sequence"])
        is_gone = any(name in headers for name in GONE)
        self._add(key, (None if is_gone else Entry(key, message.data, number), number))
        if not self._reading:
            self._tell()

    def _add(self, key: str, found: Found) -> None:
        if found[1] > self._found.get(key, (None, 0))[1]:
            self._found[key] = found

    def _tell(self) -> None:
        entries = {key: entry for key, (entry, _) in self._found.items() if entry is not None}
        if self.closed or entries == self._told:
            return
        self._told = entries
        try:
            self._take(entries)
        except Exception:
            log.exception("a callback for %s failed", self.subject)
