"""One bucket, or a part of it, as the engine's `ObjectStore`. Large objects are read in ranges by several threads."""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import from_url

from sie_core.contracts import ObjectStoreError, StoredObject, VersionedObject
from sie_objectstore.failures import conflict, told, unavailable

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutResult, UpdateVersion
    from obstore.store import BackoffConfig, ClientConfig, RetryConfig

Result = TypeVar("Result")

RANGE = 8 * 2**20
"""Bytes of one ranged read."""
READERS = 8
"""Ranged reads at once; with `RANGE` they bound the memory of a download to 64 MB."""
ATTEMPTS = 4
"""Attempts of an operation, in addition to the retries of its requests: an answer may break off after its status."""
RETRIES = 4
"""Number of obstore's retries of a request."""
BUDGET_S = 60.0
"""Seconds after which nothing that failed is tried again."""
_MARK = "siewrite"
"""Names in an object's metadata the write it is of. Azure takes no name with a hyphen."""
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_CLIENT: ClientConfig = {"allow_http": True, "connect_timeout": timedelta(seconds=5), "timeout": timedelta(seconds=60)}
"""Plain HTTP is used only if an endpoint's own URL says so."""


def _retries(budget_s: float) -> RetryConfig:
    backoff: BackoffConfig = {
        "init_backoff": timedelta(seconds=_FIRST_PAUSE_S),
        "max_backoff": timedelta(seconds=_LONGEST_PAUSE_S),
        "base": 2,
    }
    return {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=budget_s), "backoff": backoff}


class BucketStore:
    """A store at `url`; credentials and endpoint come from the variables of its provider.

    Args:
        url: `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`.
        budget_s: Seconds after which nothing that failed is tried again.

    Raises:
        ValueError: The URL or the provider's variables cannot be used.
    """

    def __init__(self, url: str, budget_s: float = BUDGET_S) -> None:
        self.url = url.rstrip("/")
        self.budget_s = budget_s
        self._version_field: Literal["version", "e_tag"] = "version" if self.url.startswith("gs:") else "e_tag"
        try:
            self._store = from_url(self.url, client_options=_CLIENT, retry_config=_retries(budget_s))
        except BaseError as error:
            raise ValueError(str(error).splitlines()[0]) from error

    def read(self, key: str) -> bytes:
        """Return a small object."""
        return self._retried(key, lambda: bytes(obstore.get(self._store, key).bytes()))

    def write(self, key: str, data: bytes) -> None:
        """Store a small object."""
        self._retried("", lambda: obstore.put(self._store, key, data))

    def read_version(self, key: str) -> VersionedObject:
        """Return a small object and its version."""

        def get() -> VersionedObject:
            found = obstore.get(self._store, key)
            return VersionedObject(bytes(found.bytes()), self._version(found.meta))

        return self._retried(key, get)

    def create(self, key: str, data: bytes) -> str:
        """Store a small object that does not exist yet."""
        return self._write_if("create", key, data)

    def replace(self, key: str, data: bytes, version: str) -> str:
        """Replace one version of a small object."""
        gs = self._version_field == "version"
        return self._write_if({"version": version} if gs else {"e_tag": version}, key, data)

    def _write_if(self, condition: Literal["create"] | UpdateVersion, key: str, data: bytes) -> str:
        mark = uuid.uuid4().hex

        def put() -> str:
            try:
                written = obstore.put(
                    self._store, key, data, attributes={_MARK: mark}, mode=condition, use_multipart=False
                )
            except (AlreadyExistsError, PreconditionError) as refused:
                # An earlier request of this call may have been served, and its answer lost.
                version = self._marked(key, mark)
                if version is None:
                    raise conflict(self.url, key) from refused
                return version
            return self._version(written)

        return self._retried("", put)

    def _marked(self, key: str, mark: str) -> str | None:
        """Return the version of an object with this mark; None if it is missing or has another mark."""
        try:
            found = obstore.get(self._store, key, options={"head": True})
        except FileNotFoundError:
            return None
        return self._version(found.meta) if found.attributes.get(_MARK) == mark else None

    def _version(self, of: ObjectMeta | PutResult) -> str:
        version = of[self._version_field]
        if version is None:
            raise ObjectStoreError("UNAVAILABLE", f"{self.url} names no {self._version_field} of its objects")
        return version

    def download(self, key: str, file: Path, size: int, progress: Callable[[int], None]) -> None:
        """Write an object to a new file, its ranges read by several threads at once."""
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            os.truncate(descriptor, size)
            if self.size(key) != size:
                raise ObjectStoreError("NOT_FOUND", f"{self.url} has no {key} of {size} bytes")
            with ThreadPoolExecutor(READERS, thread_name_prefix="sie-store") as readers:
                parts = [
                    readers.submit(self._part, key, start, min(RANGE, size - start), descriptor, progress)
                    for start in range(0, size, RANGE)
                ]
                try:
                    for part in parts:
                        part.result()
                except BaseException:
                    readers.shutdown(wait=True, cancel_futures=True)
                    raise
        finally:
            os.close(descriptor)

    def _part(self, key: str, start: int, length: int, descriptor: int, progress: Callable[[int], None]) -> None:
        content = self._retried(key, lambda: self._range(key, start, length))
        written = 0
        while written < length:
            written += os.pwrite(descriptor, memoryview(content)[written:], start + written)
        progress(length)

    def _range(self, key: str, start: int, length: int) -> bytes:
        content = bytes(obstore.get_range(self._store, key, start=start, length=length))
        if len(content) != length:
            raise ObjectStoreError("UNAVAILABLE", f"{self.url} broke off in the middle of {key}")
        return content

    def upload(self, key: str, file: Path) -> None:
        """Store a file, in parts if it is large."""
        self._retried("", lambda: obstore.put(self._store, key, file))

    def size(self, key: str) -> int | None:
        """Return the bytes of an object, None if it does not exist."""
        try:
            return int(self._retried(key, lambda: obstore.head(self._store, key))["size"])
        except ObjectStoreError as error:
            if error.failure == "NOT_FOUND":
                return None
            raise

    def list(self, prefix: str, *, below: bool = True) -> Iterator[StoredObject]:
        """List the objects of a folder, and of the folders in it."""

        def ask() -> Sequence[ObjectMeta]:
            if below:
                return obstore.list(self._store, prefix or None).collect()
            return obstore.list_with_delimiter(self._store, prefix or None)["objects"]

        found = self._retried("", ask)
        for each in found:
            yield StoredObject(each["path"], each["size"], each["e_tag"] or each["last_modified"].isoformat())

    def delete(self, key: str) -> None:
        """Remove an object, if it is there."""
        try:
            self._retried(key, lambda: obstore.delete(self._store, key))
        except ObjectStoreError as error:
            if error.failure != "NOT_FOUND":
                raise

    def _retried(self, key: str, ask: Callable[[], Result]) -> Result:
        """Ask again while the store cannot be reached or fails, within bounds; `key` is what may not be there."""
        until = time.monotonic() + self.budget_s
        pause = _FIRST_PAUSE_S
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with told(self.url, key):
                    return ask()
            except ObjectStoreError as error:
                wait = pause * (0.5 + random.random())
                if error.failure != "UNAVAILABLE" or attempt == ATTEMPTS or time.monotonic() + wait > until:
                    raise
            time.sleep(wait)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        raise unavailable(self.url, "no answer")
