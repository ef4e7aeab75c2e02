"""Opens the object store of a setting, with the plugin that serves its URL's scheme."""

from __future__ import annotations

from collections.abc import Mapping

from sie_core.contracts import ObjectStore, ObjectStoreFactory, PluginError
from sie_core.plugins.checked_store import CheckedStore


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


def url_scheme(url: str) -> str:
    """Return the scheme of a URL, without `://`; the empty string where it has none."""
    scheme, separator, _ = url.partition("://")
    return scheme.lower() if separator else ""
