"""A JetStream key-value bucket as the core's store: every entry is the last message of its subject."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Any

from nats.errors import Error
from nats.js.api import Header
from nats.js.errors import APIError, NotFoundError

from sie_core.contracts import Entry, KeyValue, QueueError
from sie_nats.connection import API_S, Connection
from sie_nats.stores.watching import GONE, Found, JetStreamWatch, told_subject
from sie_nats.streams import nanoseconds

WRONG_LAST = (10071, 10164)
"""JetStream's error codes: the last message of the subject, or of the stream, is another."""
MARKER_S = 600
"""For how long the broker keeps the message that says that an entry ended. Without one it would not say so."""


def bucket_config(name: str, storage: str, replicas: int) -> dict[str, Any]:
    """Return the configuration of a bucket's stream."""
    return {
        "name": f"KV_{name}",
        "subjects": [f"$KV.{name}.>"],
        "retention": "limits",
        "storage": storage,
        "num_replicas": replicas,
        "discard": "new",
        "max_msgs_per_subject": 1,
        "deny_delete": True,
        "allow_rollup_hdrs": True,
        "allow_msg_ttl": True,
        "subject_delete_marker_ttl": nanoseconds(MARKER_S),
        "republish": {"src": f"$KV.{name}.>", "dest": told_subject(name, ">")},
    }


class JetStreamKeyValue(KeyValue):
    """One bucket, whose stream exists."""

    def __init__(self, connection: Connection, name: str, watching: Callable[[JetStreamWatch], None]) -> None:
        self._connection, self._name, self._watching = connection, name, watching

    async def get(self, key: str) -> Entry | None:
        """Return an entry, None if it does not exist."""
        return (await self._last(key))[0]

    async def put(self, key: str, value: bytes, *, ttl_s: float | None = None) -> int:
        """Write, whatever is there; return the revision."""
        return await self._write(key, value, {}, ttl_s)

    async def compare_and_set(self, key: str, value: bytes, revision: int | None, *, ttl_s: float | None = None) -> int:
        """Write if the entry has this revision; None means that the entry must not exist."""
        try:
            return await self._write(key, value, _after(revision or 0), ttl_s)
        except QueueError as error:
            if error.failure != "CONFLICT" or revision is not None:
                raise
            entry, last = await self._last(key)
            if entry is not None:
                raise
        return await self._write(key, value, _after(last), ttl_s)

    async def delete(self, key: str) -> None:
        """Remove an entry."""
        await self._write(key, b"", {"KV-Operation": "DEL"})

    async def watch(self, on_entries: Callable[[Mapping[str, Entry]], None], keys: str = ">") -> JetStreamWatch:
        """Take the entries whose keys match a pattern, now and after each change."""
        watch = JetStreamWatch(self._connection, self._name, self._find, on_entries, keys)
        await watch.open()
        self._watching(watch)
        return watch

    async def _find(self, keys: str) -> dict[str, Found]:
        """Read the last message of each key that matches a pattern."""
        names = [keys]
        if "*" in keys or ">" in keys:
            start = f"$KV.{self._name}."
            answer = await self._connection.ask(f"STREAM.INFO.KV_{self._name}", {"subjects_filter": start + keys})
            names = [subject.removeprefix(start) for subject in answer["state"].get("subjects") or {}]
        return dict(zip(names, await asyncio.gather(*map(self._last, names)), strict=True))

    async def _last(self, key: str) -> Found:
        """Return an entry and the number of its subject's last message, which may say that it is gone."""
        try:
            stream = self._connection.client.jetstream()
            found = await stream.get_msg(f"KV_{self._name}", subject=f"$KV.{self._name}.{key}")
        except NotFoundError:
            return None, 0
        except (Error, TimeoutError) as error:
            raise self._failed(error) from None
        number = found.seq or 0
        is_gone = any(name in (found.headers or {}) for name in GONE)
        return None if is_gone else Entry(key, found.data or b"", number), number

    async def _write(self, key: str, value: bytes, headers: dict[str, str], ttl_s: float | None = None) -> int:
        stream, ttl = self._connection.client.jetstream(), None if ttl_s is None else max(1, math.ceil(ttl_s))
        subject = f"$KV.{self._name}.{key}"
        try:
            return (await stream.publish(subject, value, timeout=API_S, headers=headers or None, msg_ttl=ttl)).seq
        except APIError as error:
            if error.err_code in WRONG_LAST:
                raise QueueError("CONFLICT", f"The entry {key!r} was written meanwhile; read it again.") from None
            raise self._failed(error) from None
        except (Error, TimeoutError) as error:
            raise self._failed(error) from None

    def _failed(self, error: Exception) -> QueueError:
        return QueueError("UNAVAILABLE", f"The store {self._name!r} did not answer: {error or type(error).__name__}.")


def _after(revision: int) -> dict[str, str]:
    return {Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: str(revision)}
