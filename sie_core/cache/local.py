"""The tier `local`: whole snapshots in the Hub's cache layout on a local disk."""

from __future__ import annotations

from pathlib import Path

from sie_core.cache import hub_layout
from sie_core.cache.formats import holds_pickles, holds_safetensors
from sie_core.contracts import ModelLoadError, TierContext, WeightRequest, WeightTierFactory
from sie_core.settings import Settings


class LocalTier:
    """Serves what a cache folder holds; a snapshot that lacks a file is passed over and says which."""

    name = "local"

    def __init__(self, cache: Path) -> None:
        self.cache = cache

    def fetch(self, request: WeightRequest) -> Path | None:
        """Return the folder of the requested revision where it is whole.

        Raises:
            ModelLoadError: `NOT_FOUND`, naming a missing file, where the cache holds a part of it.
        """
        folder = hub_layout.snapshot(self.cache, request.repo_id, request.revision)
        if folder is None:
            return None
        lacking = hub_layout.missing(folder)
        if lacking is None:
            return folder
        if not holds_safetensors(folder) and holds_pickles(folder):
            raise ModelLoadError("NOT_FOUND", "the cached snapshot holds pickled weights only, which are never read")
        raise ModelLoadError("NOT_FOUND", f"the cached snapshot is not whole: {lacking} is missing")


def cache_folder(settings: Settings) -> Path:
    """Return the cache of the settings: `SIE_LOCAL_CACHE`, else the one the Hub client uses itself."""
    if settings.local_cache is not None:
        return settings.local_cache.expanduser()
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


def _create(context: TierContext) -> LocalTier:
    return LocalTier(cache_folder(context.settings))


LOCAL_TIER = WeightTierFactory(name="local", order=100, create=_create)
