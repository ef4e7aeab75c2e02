"""Keeps commits in a store, under a lease whose value names the last one.

A commit counts from the moment that the lease names it. What a process that ended has left is named by nothing.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator
from typing import TypeVar

import orjson
from pydantic import ValidationError

from sie_cluster.config_service.history.lease import Lease
from sie_cluster.config_service.history.records import Commit, Head, Pointer, Record, Snapshot, encode
from sie_cluster.config_service.history.state import State, restored
from sie_core.catalog.configs.reading import describe_problems
from sie_core.contracts import ObjectStore, ObjectStoreError

COMMITS, SNAPSHOTS = "commits", "snapshots"
SNAPSHOT_EVERY = 64
"""How many commits a start reads at most beside a snapshot, as long as snapshots can be written."""

Parsed = TypeVar("Parsed", bound=Record)


class StoreDamaged(Exception):
    """The store does not hold what its lease names; the message says how to repair it."""


class History:
    """The commits of one store. Its methods block, and are called by one thread at a time.

    Args:
        store: Where they are.
        lease: Held by this process when a method is called; its value is the head.
        step: Called with the name of each step that is done.
    """

    def __init__(self, store: ObjectStore, lease: Lease, step: Callable[[str], None]) -> None:
        self._store, self._lease, self._step = store, lease, step
        self._head = Head()
        self.newest: Commit | None = None
        """The last commit, where `load` has read it."""

    @property
    def snapshot_due(self) -> bool:
        """Whether so many commits have no snapshot that one should be written."""
        last = 0 if self._head.snapshot is None else self._head.snapshot.number
        return self._head.number - last >= SNAPSHOT_EVERY

    def load(self, *, restore: bool = True) -> State:
        """Read what is held.

        Args:
            restore: False begins with nothing, at the epoch that was reached.

        Raises:
            StoreDamaged: Objects are missing or not what they were.
            ObjectStoreError: The store failed.
            LeaseLost: The lease was lost meanwhile.
        """
        self.newest = None
        if not restore or not self._lease.value:
            epoch, number = self._reached()
            if restore and number:
                raise self._damaged("its lease is new, and there are commits: the lease was removed")
            self._name(Head(epoch=epoch, number=number))
            return State(epoch, number)
        head = self._parse(Head, self._lease.value.encode(), "the lease's value")
        state = self._replayed(head)
        self._head = head
        return state

    def commit(self, commit: Commit) -> None:
        """Make a commit count.

        Args:
            commit: The next one, with no parent; that is named here.

        Raises:
            ObjectStoreError: The store failed. Where the lease is still held, nothing counts; else it is open.
            LeaseLost: Another holds the lease, and nothing counts.
        """
        whole = commit.model_copy(update={"parent": self._head.commit})
        pointer = self._write(COMMITS, whole)
        self._step("stored")
        self._name(Head(epoch=whole.epoch, number=whole.number, commit=pointer, snapshot=self._head.snapshot))
        self._step("committed")

    def write_snapshot(self, state: State) -> Pointer:
        """Write everything; it counts once it is named. May be called beside other methods.

        Raises:
            ObjectStoreError: The store failed.
        """
        return self._write(SNAPSHOTS, state.snapshot())

    def name_snapshot(self, pointer: Pointer) -> int:
        """Begin with a snapshot from now on, and return the number of the commit before which `sweep` may remove.

        Raises:
            ObjectStoreError: The store failed.
            LeaseLost: Another holds the lease.
        """
        before = self._head.snapshot
        self._name(self._head.model_copy(update={"snapshot": pointer}))
        self._step("snapshot named")
        # A copy of the store that was begun before then holds everything that its lease names.
        return 0 if before is None else before.number

    def sweep(self, number: int) -> None:
        """Remove what is older than a commit, that of crashes too. May be called beside other methods.

        Raises:
            ObjectStoreError: The store failed.
        """
        for key, (of_object, _) in list(self._objects()):
            if of_object < number:
                self._store.delete(key)

    def _name(self, head: Head) -> None:
        self._lease.write(encode(head).decode())
        self._head = head

    def _replayed(self, head: Head) -> State:
        state = State() if head.commit else State(head.epoch, head.number)
        if head.snapshot is not None:
            state = restored(self._read(Snapshot, head.snapshot))
        commits: list[Commit] = []
        pointer = head.commit
        while pointer is not None and pointer.number > state.number:
            commit = self._read(Commit, pointer)
            commits.append(commit)
            pointer = commit.parent
        self.newest = commits[0] if commits else None
        if head.snapshot is None and commits:
            first = commits[-1]
            state = State(first.epoch - (first.model_id is not None), first.number - 1)
        elif head.snapshot is not None and (pointer is None or pointer.number != state.number):
            raise self._damaged(f"the commits before {head.epoch} do not reach the snapshot {head.snapshot.key}")
        try:
            for commit in reversed(commits):
                state = state.after(commit)
        except ValueError as error:
            raise self._damaged(str(error)) from None
        if (state.epoch, state.number) != (head.epoch, head.number):
            raise self._damaged(f"the epoch is {head.epoch}, and the commits lead to {state.epoch}")
        return state

    def _write(self, folder: str, record: Commit | Snapshot) -> Pointer:
        """Write an object under a name that no other attempt uses: one given up may still arrive at the store."""
        data = encode(record)
        name = f"{record.number:012d}-{record.epoch:012d}-{self._lease.fence}-{uuid.uuid4().hex[:8]}"
        key = f"{folder}/{name}.json"
        self._store.write(key, data)
        return Pointer(key=key, sha256=hashlib.sha256(data).hexdigest(), number=record.number)

    def _read(self, kind: type[Parsed], pointer: Pointer) -> Parsed:
        try:
            data = self._store.read(pointer.key)
        except ObjectStoreError as error:
            if error.failure != "NOT_FOUND":
                raise
            raise self._damaged(f"{pointer.key} is missing") from error
        if hashlib.sha256(data).hexdigest() != pointer.sha256:
            raise self._damaged(f"{pointer.key} was changed")
        return self._parse(kind, data, pointer.key)

    def _parse(self, kind: type[Parsed], data: bytes, name: str) -> Parsed:
        try:
            return kind.model_validate(orjson.loads(data))
        except ValidationError as error:
            raise self._damaged(f"{name}: {'; '.join(describe_problems(error)[:3])}") from None
        except orjson.JSONDecodeError as error:
            raise self._damaged(f"{name} is no JSON: {error.msg}") from None

    def _reached(self) -> tuple[int, int]:
        """Return the highest epoch and number that the lease or the name of any object tells."""
        reached = [found for _, found in self._objects()]
        try:
            head = Head.model_validate(orjson.loads(self._lease.value or b"{}"))
            reached.append((head.number, head.epoch))
        except ValueError:
            pass
        return max((epoch for _, epoch in reached), default=0), max((number for number, _ in reached), default=0)

    def _objects(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """List commits and snapshots by key, with their numbers and epochs."""
        for folder in (COMMITS, SNAPSHOTS):
            for each in self._store.list(folder):
                number, _, rest = each.key.rpartition("/")[2].partition("-")
                epoch = rest.partition("-")[0]
                if number.isdecimal() and epoch.isdecimal():
                    yield each.key, (int(number), int(epoch))

    def _damaged(self, why: str) -> StoreDamaged:
        return StoreDamaged(
            f"SIE_CONFIG_STORE_DIR={self._store.url} is damaged: {why:.500}. Put a backup of the whole folder in its "
            "place; or start once with SIE_CONFIG_RESTORE=false, which begins without the models that it holds, at the "
            "epoch that was reached."
        )
