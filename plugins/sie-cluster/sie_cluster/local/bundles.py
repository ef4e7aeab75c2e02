"""The bundles of a cluster on one machine: those asked for, or one that serves whatever is installed here."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from sie_bundle.bundles.names import EVERY_MODEL, FILE
from sie_bundle.bundles.reading import read_bundles, shipped_bundles

from sie_cluster.settings import ClusterSettings
from sie_core.plugins import PluginSet
from sie_core.settings import SettingsError


@dataclass(frozen=True, slots=True)
class LocalBundles:
    """Which bundles have workers here."""

    names: tuple[str, ...]
    folder: Path
    """Where the config service reads all bundles."""


def local_bundles(settings: ClusterSettings, plugins: PluginSet, folder: Path, asked: Sequence[str]) -> LocalBundles:
    """Find the bundles of a cluster.

    Without a choice every worker has the plugins of this environment, so one bundle is written that serves all models.

    Args:
        settings: The settings in force.
        plugins: What is installed.
        folder: The cluster's.
        asked: The bundles that are to have workers.

    Raises:
        SettingsError: There is no such bundle; names those there are.
    """
    if not asked and settings.bundles_dir is None:
        written = folder / "bundle-of-all"
        shutil.rmtree(written, ignore_errors=True)  # it may be of another name than at the last run
        _write_one(written / settings.bundle / FILE, plugins)
        return LocalBundles((settings.bundle,), written)
    known = settings.bundles_dir or shipped_bundles()
    names = tuple(dict.fromkeys(asked or [settings.bundle]))
    there = [bundle.name for bundle in read_bundles(known)]
    for name in names:
        if name not in there:
            raise SettingsError(f"--bundles {name}: {known} holds no such bundle; there are {', '.join(there)}.")
    return LocalBundles(names, known.absolute())


def _write_one(file: Path, plugins: PluginSet) -> None:
    families = [each.name for each in plugins.reports if each.registers.get("sie_model_families")]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump({"plugins": sorted(set(families)), "models": [EVERY_MODEL]}))
