"""A JetStream key-value bucket as the core's store."""

from __future__ import annotations

from nats.errors import Error
from nats.js.errors import (
    BucketNotFoundError,
    KeyDeletedError,
    KeyNotFoundError,
    KeyWrongLastSequenceError,
)
from nats.js.kv import KeyValue as Bucket

from sie_core.contracts import Entry, KeyValue, QueueError, QueueFailure


class JetStreamKeyValue(KeyValue):
    """One bucket."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    async def get(self, key: str) -> Entry | None:
        """Return an entry, None if it does not exist."""
        try:
            found = await self._bucket.get(key)
        except (KeyNotFoundError, KeyDeletedError):
            return None
        except (Error, TimeoutError) as error:
            raise self._failed(error) from None
        return Entry(key, found.value or b"", found.revision or 0)

    async def put(self, key: str, value: bytes) -> int:
        """Write, whatever is there; return the revision."""
        try:
            return await self._bucket.put(key, value)
        except (Error, TimeoutError) as error:
            raise self._failed(error) from None

    async def compare_and_set(self, key: str, value: bytes, revision: int | None) -> int:
        """Write if the entry has this revision; None means that the entry must not exist."""
        try:
            if revision is None:
                return await self._bucket.create(key, value)
            return await self._bucket.update(key, value, last=revision)
        except KeyWrongLastSequenceError:
            told = f"The entry {key!r} is no longer at revision {revision}; read it again."
            raise QueueError("CONFLICT", told) from None
        except (Error, TimeoutError) as error:
            raise self._failed(error) from None

    async def delete(self, key: str) -> None:
        """Remove an entry."""
        try:
            await self._bucket.delete(key)
        except (Error, TimeoutError) as error:
            raise self._failed(error) from None

    def _failed(self, error: Exception) -> QueueError:
        failure: QueueFailure = "NOT_FOUND" if isinstance(error, BucketNotFoundError) else "UNAVAILABLE"
        return QueueError(failure, f"The store did not answer: {error or type(error).__name__}.")
