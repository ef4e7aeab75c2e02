"""Opens the object store of a setting: a local folder, or with the plugin that serves its URL's scheme."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sie_core.contracts import ObjectStore, ObjectStoreFactory, PluginError
from sie_core.plugins.checked_store import CheckedStore
from sie_core.stores.folder import FolderStore


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
            "Install one that registers an object store for it; docs/weights.md names some."
        )
    try:
        store = factory.create(url)
        if not isinstance(store.url, str):
            raise TypeError(f"{store!r:.100} is no store")
    except (ValueError, ImportError) as error:
        raise PluginError(f"{variable}={url!r} cannot be used: {error}") from error
    except Exception as error:
        failed = f"the plugin that serves {factory.scheme}:// failed ({type(error).__name__}: {error})"
        raise PluginError(f"{variable}={url!r} cannot be used: {failed}") from error
    return CheckedStore(store)


def open_store_or_folder(
    variable: str, place: str, stores: Mapping[str, ObjectStoreFactory], *, durable: bool = True
) -> ObjectStore:
    """Open the store of a setting that may name a local folder too. Asks nothing of it.

    Args:
        variable: The setting.
        place: A URL, or the path of a folder, which need not be there yet.
        stores: By scheme.
        durable: Whether what is written into a folder must outlast a power cut.

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
    """Return the scheme of a URL, without `://`; the empty string where it has none."""
    scheme, separator, _ = url.partition("://")
    return scheme.lower() if separator else ""
