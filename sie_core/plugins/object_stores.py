"""Opens the object store of a setting: a local folder, or with the plugin that serves its URL's scheme.

Any exception of a plugin's store outside its contract becomes a failure of the store.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sie_core.contracts import (
    ObjectStore,
    ObjectStoreError,
    ObjectStoreFactory,
    PluginError,
    StoredObject,
    VersionedObject,
)
from sie_core.folder_store import FolderStore
from sie_core.plugins.interfaces.signatures import require

log = logging.getLogger(__name__)


def open_store(variable: str, url: str, stores: Mapping[str, ObjectStoreFactory]) -> ObjectStore:
    """Open the store of the setting `variable`, by the scheme of its URL. Makes no network call.

    Raises:
        PluginError: No plugin serves the scheme, or the store is unusable; the message names the remedy.
    """
    factory = stores.get(url_scheme(url))
    if factory is None:
        served = ", ".join(f"{scheme}://" for scheme in sorted(stores)) or "none"
        raise PluginError(
            f"{variable}={url!r}: no installed plugin serves {url_scheme(url)}://; served are: {served}. "
            "Install one that registers an object store for it; docs/operate/weights.md names some."
        )
    try:
        store = factory.create(url)
        if not isinstance(store.url, str):
            raise TypeError(f"{store!r:.100} is no store")
        require(store, ObjectStore, partly=True)
    except (ValueError, ImportError) as error:
        raise PluginError(f"{variable}={url!r} cannot be used: {error}") from error
    except Exception as error:
        failed = f"the plugin that serves {factory.scheme}:// failed ({type(error).__name__}: {error})"
        raise PluginError(f"{variable}={url!r} cannot be used: {failed}") from error
    return CheckedStore(store)


def open_store_or_folder(
    variable: str, place: str, stores: Mapping[str, ObjectStoreFactory], *, durable: bool = True
) -> ObjectStore:
    """Open the store of a setting that may name a local folder too. Makes no request to it.

    Args:
        variable: The setting.
        place: A URL, or the path of a folder, which need not be there yet.
        stores: By scheme.
        durable: Whether writes into a folder must survive a power cut.

    Raises:
        PluginError: As `open_store`, or the path is no folder's.
    """
    if url_scheme(place):
        return open_store(variable, place, stores)
    folder = Path(place).absolute()
    if folder.exists() and not folder.is_dir():
        raise PluginError(f"{variable}={place!r} is no folder; name one, or a bucket such as s3://bucket/path.")
    return FolderStore(folder, durable=durable)


def url_scheme(url: str) -> str:
    """Return the scheme of a URL, without `://`; the empty string if it has none."""
    scheme, separator, _ = url.partition("://")
    return scheme.lower() if separator else ""


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
        """Store a small object that does not exist yet."""
        with self._typed("create"):
            return _version(self._store.create(key, data))

    def replace(self, key: str, data: bytes, version: str) -> str:
        """Replace one version of a small object."""
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
        """Return the bytes of an object, None if it does not exist."""
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
