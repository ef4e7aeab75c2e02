"""The tier `local`: complete snapshots in the Hub's cache layout on a local disk, checked before use."""

from __future__ import annotations

from pathlib import Path

from sie_core.cache.disk import hub_layout
from sie_core.cache.disk.cache import DiskCache, disk_cache
from sie_core.cache.formats import holds, holds_pickles
from sie_core.contracts import ModelLoadError, TierContext, WeightRequest, WeightTierFactory, is_pickled
from sie_core.contracts.model.weights import PicklesMissing


class LocalTier:
    """Serves snapshots of the cache. One with a missing or wrong file is skipped, with an error that names the file."""

    peeks = True

    def __init__(self, cache: DiskCache | Path, name: str = "local") -> None:
        self.cache = cache if isinstance(cache, DiskCache) else DiskCache(cache)
        self.name = name

    def fetch(self, request: WeightRequest) -> Path | None:
        """Return the folder of the requested revision if it is complete.

        Raises:
            ModelLoadError: `NOT_FOUND`, naming a missing file, if the snapshot is partial; `CORRUPT` if a file differs
                from its publisher's.
        """
        folder = hub_layout.snapshot(self.cache.folder, request.repo_id, request.revision)
        if folder is None:
            return None
        lacking = hub_layout.missing(folder, request.weights, request.pickles)
        if lacking is not None:
            if not holds(folder, request.weights) and holds_pickles(folder):
                raise ModelLoadError(
                    "NOT_FOUND",
                    "the cached snapshot holds pickled weights only, which are read only where the model's config pins "
                    "them (`pickles`)",
                )
            raise ModelLoadError("NOT_FOUND", f"the cached snapshot is not whole: {lacking} is missing")
        if not request.peek:
            # Pickled weights are there, or others are.
            if absent := [each for each in request.pickles if not (is_pickled(each) or (folder / each).is_file())]:
                raise PicklesMissing(f"the cached snapshot lacks {' and '.join(absent)}")
            check(self.cache, request, folder)
        return folder


def check(cache: DiskCache, request: WeightRequest, folder: Path) -> None:
    """Check the files of a snapshot that `request` asks for.

    Raises:
        ModelLoadError: `CORRUPT`, naming the first wrong file and the remedy.
    """
    repo_id, faults = request.repo_id, cache.proofs.faults(folder, request.weights)
    if faults:
        name, fault = next(iter(faults.items()))
        others = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise ModelLoadError(
            "CORRUPT",
            f"{name} of {repo_id} in the local cache {fault}{others}. A tier that has it replaces it; else remove it "
            f"(`sie cache prune {repo_id}`) and fetch it again",
        )


def _create(context: TierContext) -> LocalTier:
    return LocalTier(disk_cache(context.settings))


def _create_baked(context: TierContext) -> LocalTier | None:
    folder = context.settings.baked_weights
    return LocalTier(folder.expanduser(), "baked") if folder is not None else None


BAKED_TIER = WeightTierFactory(name="baked", order=50, create=_create_baked)
"""Weights in the image, asked before the cache of fetched ones."""
LOCAL_TIER = WeightTierFactory(name="local", order=100, create=_create)
