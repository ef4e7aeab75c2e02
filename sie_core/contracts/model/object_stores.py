"""Stores of objects by key, such as buckets: plugins register them by URL scheme, the engine reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

StoreFailure = Literal["NOT_FOUND", "DENIED", "UNAVAILABLE", "CONFLICT"]
"""Object or bucket not found; credentials or key refused; store unreachable or failing; condition of a `create` or a
`replace` not met.
"""


class ObjectStoreError(Exception):
    """A store could not complete a call; the message is fit for a client: no credentials, no foreign text."""

    def __init__(self, failure: StoreFailure, message: str) -> None:
        super().__init__(message)
        self.failure: StoreFailure = failure


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object of a listing."""

    key: str
    size: int
    """Bytes."""
    version: str
    """Changes with the object: its entity tag, or its time if the store has no tags. Not valid for `replace`."""


@dataclass(frozen=True, slots=True)
class VersionedObject:
    """An object's content and version."""

    data: bytes
    version: str
    """For `replace`.

    It may be a hash of the content: an object that has its old content again may have its old version again. Writers
    that must be noticed write new content each time.
    """


class ObjectStore(Protocol):
    """One store, or a part of it below a prefix. Keys are relative to it and joined by `/`.

    Methods block, may be called from any thread, retry transient failures, and give up after a bounded time. They raise
    `ObjectStoreError`; an `OSError` concerns local files only.
    """

    url: str
    """The URL as given, for messages; never with credentials."""

    def read(self, key: str) -> bytes:
        """Return a small object."""
        ...

    def write(self, key: str, data: bytes) -> None:
        """Store a small object, replacing any other; readers find the old or the new one, never a part."""
        ...

    def read_version(self, key: str) -> VersionedObject:
        """Return a small object and its version."""
        ...

    def create(self, key: str, data: bytes) -> str:
        """Store a small object that does not exist yet, and return its version. `CONFLICT`: it exists.

        If several processes create or replace an object at once, exactly one succeeds. `UNAVAILABLE` leaves open
        whether the object was written, or will be yet. The conditions hold among `create` and `replace`; `write`,
        `upload` and `delete` are for other keys.
        """
        ...

    def replace(self, key: str, data: bytes, version: str) -> str:
        """Replace one version of a small object, and return the new version; otherwise as `create`.

        `CONFLICT`: the object has another version, or is not there.
        """
        ...

    def download(self, key: str, file: Path, size: int, progress: Callable[[int], None]) -> None:
        """Write an object of `size` bytes to a new file, by several parallel reads if that is faster.

        Args:
            key: The object.
            file: Created by this method; after a failure the caller removes the remains.
            size: Expected bytes of the object; another size is `NOT_FOUND`.
            progress: Called with the number of new bytes, from any thread.
        """
        ...

    def upload(self, key: str, file: Path) -> None:
        """Store a file of any size, in place of an object that is there."""
        ...

    def size(self, key: str) -> int | None:
        """Return the bytes of an object, None if it does not exist."""
        ...

    def list(self, prefix: str, *, below: bool = True) -> Iterator[StoredObject]:
        """List the objects whose keys begin with the folder `prefix`, in no certain order.

        Without `below`, objects in its folders are left out, and cost no time.
        """
        ...

    def delete(self, key: str) -> None:
        """Delete an object; a missing object is no error."""
        ...


@dataclass(frozen=True, slots=True)
class ObjectStoreFactory:
    """The stores of one URL scheme that a plugin offers."""

    scheme: str
    """For example `s3`, for URLs like `s3://bucket/prefix`."""
    create: Callable[[str], ObjectStore]
    """Takes the URL; may import its library. Asks nothing of the network.

    Raises `ValueError` if the URL or the store's own settings cannot be used.
    """
