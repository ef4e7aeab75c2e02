"""The right to write, held by one process at a time and kept in one object of a store, together with what it guards.

It needs nothing but the contract of object stores.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from sie_core.contracts import ObjectStore, ObjectStoreError, VersionedObject

LASTS_S = 10.0
"""Seconds that a lease lasts unless its holder renews it."""
LONGEST_S = 3600.0
"""Seconds that a lease may last at most; a record that states more is damaged."""


class LeaseLost(Exception):
    """This process does not hold the lease, and nothing was written; the message names who does, where it is known."""


class LeaseDamaged(Exception):
    """The object is no lease; the message says how to repair it."""


@dataclass(frozen=True, slots=True)
class _Record:
    """The object's content. No two are equal: `fence` and `writes` only grow, and tokens differ."""

    owner: str
    token: str
    fence: int
    writes: int
    """Since this owner took it."""
    lasts_s: float
    """From its last write; 0 where it was released."""
    value: str


@dataclass(frozen=True, slots=True)
class _Held:
    record: _Record
    version: str
    ends: float
    """By this process's clock."""


class Lease:
    """One process's view of a lease. Methods may be called from any thread, and block.

    Every write replaces the version that this process wrote last. The next owner's first write changes that version, so
    that nothing of the last one is written any more, however long it stood still between a check and a write. A value
    of more than a small object is written under names that hold `fence`, nobody's else, before `write` names them.

    A lease has ended for others once they have seen the same version for as long as it lasts: no two machines' clocks
    are compared. Whatever fails leaves open whether it was written: then the lease is held no more, and `acquire` reads
    how it stands, and need not wait for the end of this process's own.

    Args:
        store: Where it is.
        key: Of its object, which nothing else writes.
        owner: This process's name, for others to tell.
        lasts_s: Seconds without a renewal after which others may take it.
        clock: Seconds of a clock that is never set back.

    Raises:
        ValueError: `lasts_s` is out of bounds.
    """

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        owner: str,
        lasts_s: float = LASTS_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 0 < lasts_s <= LONGEST_S:
            raise ValueError(f"a lease of {lasts_s!r} s: it lasts more than 0 s and at most {LONGEST_S:g}")
        self._store, self._key, self._owner, self._lasts_s, self._clock = store, key, owner, lasts_s, clock
        self._token = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._held: _Held | None = None
        self._seen: str | None = None
        self._seen_since = 0.0
        self.value: str = ""
        """What is guarded, as this process wrote it last, or read it when it acquired the lease."""
        self.fence = 0
        """Which holder this process was last, counted from 1."""
        self.holder: str | None = None
        """The name of who holds it, as far as this process knows; None where nobody does."""

    @property
    def held(self) -> bool:
        """Whether this process may write, as far as it knows."""
        held = self._held
        return held is not None and self._clock() < held.ends

    def acquire(self) -> bool:
        """Try once to take the lease; True where this process holds it now. Others call it again and again.

        Raises:
            ObjectStoreError: The store failed, or does not keep to conditions.
            LeaseDamaged: The object is no lease.
        """
        with self._lock:
            if self.held:
                return True
            self._held = None
            found = self._read()
            last = _Record("", "", 0, 0, 0.0, "") if found is None else self._parse(found.data)
            if found is not None and not self._may_take(last, found.version):
                self.holder = last.owner
                return False
            record = _Record(self._owner, self._token, last.fence + 1, 0, self._lasts_s, last.value)
            try:
                held = self._write(record, None if found is None else found.version)
            except ObjectStoreError as error:
                if error.failure != "CONFLICT":
                    raise
                self.holder = self._who()
                return False
            self._prove(held.record, None if found is None else found.version)
            self._held, self.value, self.fence, self.holder = held, record.value, record.fence, self._owner
            return True

    def renew(self) -> None:
        """Hold it for another `lasts_s` from now; called several times in each.

        Raises:
            ObjectStoreError: The store failed; the lease is held no more.
            LeaseLost: It is another's, or has ended.
        """
        with self._lock:
            self._replace(self.value, self._lasts_s)

    def write(self, value: str) -> None:
        """Replace what is guarded, and renew the lease.

        Args:
            value: Short: every renewal writes it again.

        Raises:
            ObjectStoreError: The store failed; the lease is held no more, and whether `value` was written is open until
                `acquire` has read it.
            LeaseLost: It is another's, or has ended.
        """
        with self._lock:
            self._replace(value, self._lasts_s)
            self.value = value

    def release(self) -> None:
        """Let others take it at once; without effect where it is not held.

        Raises:
            ObjectStoreError: The store failed; others take it when it ends.
        """
        with self._lock, contextlib.suppress(LeaseLost):
            self._replace(self.value, 0.0)
            self._held = self.holder = None

    def _replace(self, value: str, lasts_s: float) -> None:
        """Write the next version; `held` tells the truth meanwhile, to threads that wait for no write."""
        held = self._held
        if held is None:
            raise LeaseLost(f"{self._where} is not held by {self._owner}: acquire it first")
        try:
            self._held = self._replaced(held, value, lasts_s)
        except BaseException:
            self._held = None
            raise

    def _replaced(self, held: _Held, value: str, lasts_s: float) -> _Held:
        if self._clock() >= held.ends:
            self.holder = self._who()
            raise LeaseLost(f"{self._where} ended before {self._owner} renewed it: acquire it again")
        record = replace(held.record, writes=held.record.writes + 1, value=value, lasts_s=lasts_s)
        try:
            return self._write(record, held.version)
        except ObjectStoreError as error:
            if error.failure != "CONFLICT":
                raise
            self.holder = self._who()
            told = f"{self._where} is no longer held by {self._owner}: {self.holder or 'another process'} has it"
            raise LeaseLost(told) from error

    def _write(self, record: _Record, version: str | None) -> _Held:
        ends = self._clock() + record.lasts_s
        data = json.dumps(asdict(record)).encode()
        if version is None:
            return _Held(record, self._store.create(self._key, data), ends)
        return _Held(record, self._store.replace(self._key, data, version), ends)

    def _prove(self, record: _Record, before: str | None) -> None:
        """Have the store refuse conditions that do not hold: some S3 gateways ignore them."""
        for version in {None, before}:
            try:
                self._write(record, version)
            except ObjectStoreError as error:
                if error.failure != "CONFLICT":
                    raise
            else:
                told = f"{self._store.url} ignores the conditions of writes (If-None-Match, If-Match)"
                raise ObjectStoreError("UNAVAILABLE", f"{told}: choose a store that keeps to them")

    def _may_take(self, last: _Record, version: str) -> bool:
        now = self._clock()
        if version != self._seen:
            self._seen, self._seen_since = version, now
        return last.token == self._token or now - self._seen_since >= last.lasts_s

    def _read(self) -> VersionedObject | None:
        try:
            return self._store.read_version(self._key)
        except ObjectStoreError as error:
            if error.failure == "NOT_FOUND":
                return None
            raise

    def _who(self) -> str | None:
        with contextlib.suppress(ObjectStoreError, LeaseDamaged):
            found = self._read()
            return None if found is None else self._parse(found.data).owner
        return None

    def _parse(self, data: bytes) -> _Record:
        try:
            fields = json.loads(data)
            record = _Record(**fields)
            texts = isinstance(record.owner, str) and isinstance(record.token, str) and isinstance(record.value, str)
            counts = type(record.fence) is int and type(record.writes) is int and record.fence > 0 <= record.writes
            if texts and counts and 0 <= record.lasts_s <= LONGEST_S:
                return record
            why = "a field is out of bounds"
        except (ValueError, TypeError, RecursionError) as error:
            why = f"{type(error).__name__}: {error}"
        told = f"{self._where} is no lease ({why:.200}): stop the processes that use it and restore it from a backup"
        raise LeaseDamaged(told)

    @property
    def _where(self) -> str:
        return f"{self._store.url}/{self._key}"
