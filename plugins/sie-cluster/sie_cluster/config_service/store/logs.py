"""Where writes are kept in one order: a journal of the broker, or one object of a store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from sie_cluster.config_service.store.backups import BackupStore
from sie_cluster.config_service.store.records import Backup, Entry, Write, unpack
from sie_cluster.config_service.store.state import reading_of
from sie_cluster.queue.subjects import JOURNAL
from sie_core.contracts import Journal, ObjectStoreError, QueueError, QueueTransport, Reading

ANSWER_S: Final = 6.0
"""How long one call of the broker may take; the transport's own bounds are shorter."""

T = TypeVar("T")


class JournalLog:
    """The broker's journal, for threads.

    Args:
        transport: Returns the open transport; None while the broker was not reached.
        loop: The event loop that it was opened on.
    """

    def __init__(self, transport: Callable[[], QueueTransport | None], loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._journal: Journal | None = None

    def open(self, first: int | None) -> None:
        """Open the journal.

        Args:
            first: The number of its first record where it is made now; None makes none.

        Raises:
            QueueError: `NOT_FOUND`: it is not there, and `first` is None.
        """
        transport = self._transport()
        if transport is None:
            raise QueueError("UNAVAILABLE", "The broker of SIE_NATS_URL was not reached yet.")
        self._journal = self._call(transport.journal(JOURNAL, make=first is not None, first=first or 1))

    def read(self, after: int = 0) -> Reading:
        """Read the journal."""
        return self._call(self._opened.read(after))

    def append(self, key: str, payload: bytes, *, after: int) -> int:
        """Append to the journal."""
        return self._call(self._opened.append(key, payload, after=after))

    @property
    def _opened(self) -> Journal:
        if self._journal is None:
            raise QueueError("UNAVAILABLE", f"The journal {JOURNAL!r} was not opened yet.")
        return self._journal

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:  # the loop has ended
            coroutine.close()
            raise QueueError("UNAVAILABLE", "The service ends.") from None
        try:
            return future.result(ANSWER_S)
        except TimeoutError:
            future.cancel()
            raise QueueError("UNAVAILABLE", f"The broker took more than {ANSWER_S:g} s.") from None


class ObjectLog:
    """The backup as the log, where there is no broker: each write replaces the object that it was validated against.

    Args:
        backups: Where.
        restore: Whether to begin with what is there.
    """

    def __init__(self, backups: BackupStore, *, restore: bool = True) -> None:
        self._backups, self._restore, self._last = backups, restore, Backup(epoch=0)
        self._first = 1

    def open(self, first: int | None) -> None:
        """Begin with what is there; where that is not wanted, with nothing, at its epoch."""
        self._first = first or 1
        if not self._restore:
            self._backups.set_aside()
            self._restore = True

    def read(self, after: int = 0) -> Reading:
        """Read the object."""
        self._last = self._backups.read() or Backup(epoch=self._first - 1)
        return reading_of(self._last, after)

    def append(self, key: str, payload: bytes, *, after: int) -> int:
        """Replace the object."""
        write, last = unpack(key, payload), self._last
        assert isinstance(write, Write)
        if last.epoch != after:
            raise QueueError("CONFLICT", f"The log is at {last.epoch}, not at {after}; read on.")
        entries = [each for each in last.entries if each.write.model_id != write.model_id]
        entries.append(Entry.model_construct(epoch=after + 1, write=write))
        backup = Backup.model_construct(epoch=after + 1, entries=entries)
        try:
            self._backups.write(backup)
        except ObjectStoreError as error:
            if error.failure != "CONFLICT":
                raise
            raise QueueError("CONFLICT", "Another service was first; read on.") from None
        self._last = backup
        return backup.epoch


ConfigLog = JournalLog | ObjectLog
"""Methods block, and raise `QueueError` or `ObjectStoreError`."""
