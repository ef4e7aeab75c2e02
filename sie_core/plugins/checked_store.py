"""Wraps a plugin's object store: any exception outside its contract becomes a failure of the store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sie_core.contracts import ObjectStore, ObjectStoreError, StoredObject, VersionedObject

log = logging.getLogger(__name__)


class CheckedStore:
    """Wraps an `ObjectStore` so that only `ObjectStoreError` and `OSError` are raised."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.url = store.url

    def read(self, key: str) -> bytes:
        """Return a small object."""
        with self._typed("read"):
            data = self._store.read(key)
            if not isinstance(data, bytes):
                raise TypeError(f"read returned a {type(data).__name__}")
        return data

    def write(self, key: str, data: bytes) -> None:
        """Store a small object."""
        with self._typed("write"):
            self._store.write(key, data)

    def read_version(self, key: str) -> VersionedObject:
        """Return a small object and its version."""
        with self._typed("read_version"):
            found = self._store.read_version(key)
            if not isinstance(found, VersionedObject):
                raise TypeError(f"read_version returned a {type(found).__name__}")
        return found

    def create(self, key: str, data: bytes) -> str:
        """Store a small object where there is none."""
        with self._typed("create"):
            return _version(self._store.create(key, data))

    def replace(self, key: str, data: bytes, version: str) -> str:
        """Store a small object in place of a version of it."""
        with self._typed("replace"):
            return _version(self._store.replace(key, data, version))

    def download(self, key: str, file: Path, size: int, progress: Callable[[int], None]) -> None:
        """Write an object to a new file."""
        with self._typed("download", OSError):
            self._store.download(key, file, size, progress)

    def upload(self, key: str, file: Path) -> None:
        """Store a file of any size."""
        with self._typed("upload", OSError):
            self._store.upload(key, file)

    def size(self, key: str) -> int | None:
        """Return the bytes of an object, None where there is none."""
        with self._typed("size"):
            return self._store.size(key)

    def list(self, prefix: str, *, below: bool = True) -> Iterator[StoredObject]:
        """List the objects whose keys begin with the folder `prefix`."""
        with self._typed("list"):
            for each in self._store.list(prefix, below=below):
                if not isinstance(each, StoredObject):
                    raise TypeError(f"list gave a {type(each).__name__}")
                yield each

    def delete(self, key: str) -> None:
        """Remove an object."""
        with self._typed("delete"):
            self._store.delete(key)

    @contextmanager
    def _typed(self, what: str, *passing: type[Exception]) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if isinstance(error, (ObjectStoreError, *passing)):
                raise
            log.exception("the store of %s failed in `%s`", self.url, what)
            failed = f"{self.url}: its plugin failed in `{what}` ({type(error).__name__}); the log says more"
            raise ObjectStoreError("UNAVAILABLE", failed) from error


def _version(given: object) -> str:
    if not isinstance(given, str):
        raise TypeError(f"the version is a {type(given).__name__}")
    return given
