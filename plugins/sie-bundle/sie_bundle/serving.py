"""What a bundle serves by what is installed here, and the hashes by which machines of a cluster compare it."""

from __future__ import annotations

from dataclasses import dataclass

from sie_bundle.bundles.hashes import bundle_config_hash, bundles_hash
from sie_bundle.bundles.placement import Placement
from sie_bundle.bundles.reading import BundleFile
from sie_core.catalog import Catalog, profiles_of
from sie_core.plugins import PluginSet


@dataclass(frozen=True, slots=True)
class Served:
    """A bundle as the config service tells of it."""

    models: tuple[str, ...]
    """Ids of the models of which it serves any profile."""
    adapters: tuple[str, ...]
    config_hash: str
    """Of these models' configs; empty where it serves none."""
    bundle_hash: str
    """Of its name, priority, adapters and engine."""


def served_by(file: BundleFile, catalog: Catalog, plugins: PluginSet) -> Served:
    """Say what a bundle serves of a catalog."""
    placement = Placement([file.bundle()], plugins)
    served = [config for config in catalog.configs.values() if any(map(placement.bundles_of, profiles_of(config)))]
    views, ids = placement.views(), sorted(config.id for config in served)
    return Served(tuple(ids), views[0].adapters, bundle_config_hash(served), bundles_hash(views))
