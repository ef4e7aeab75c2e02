"""Checks a bundle, subject by subject."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from sie_bundle.bundles.reading import BundleFile
from sie_bundle.checks.findings import Finding
from sie_bundle.checks.licences import check_licences
from sie_bundle.checks.models import check_models
from sie_bundle.checks.overrides import check_dates, check_versions, stand_ins
from sie_bundle.checks.plugins import PluginCheck, check_plugins
from sie_bundle.checks.settings import check_settings
from sie_bundle.checks.siblings import check_siblings
from sie_bundle.locks.solving import Sources
from sie_core.catalog import Catalog, build_catalog
from sie_core.settings import Settings


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a check takes from outside the bundle."""

    settings: Settings
    builtins: tuple[object, ...]
    """The plugins of the core."""
    sources: Sources
    today: date
    solve: bool = True
    """Whether versions are solved, which asks the registry."""
    ask_hub: bool = False
    """Whether the Hub is asked for pins that are not on this machine."""


def check_bundle(file: BundleFile, around: Surroundings) -> list[Finding]:
    """Find what is wrong with a bundle, in the order of subjects.

    Raises:
        ToolMissing: Versions are to be solved, and the solver is not installed.
    """
    found = check_plugins(file, around.settings, around.builtins, around.sources.wheels)
    catalog = None if found.plugins is None else build_catalog(of_any(around.settings), found.plugins)
    findings = [*check_siblings(file), *found.findings]
    findings += _of_what_is_registered(file, found, catalog, around)
    findings += check_dates(file, around.today)
    findings += check_licences(file, catalog)
    if around.solve and not any(not each.note for each in found.findings):
        findings += _versions(file, around.sources)
    return findings


def _of_what_is_registered(
    file: BundleFile, found: PluginCheck, catalog: Catalog | None, around: Surroundings
) -> Iterator[Finding]:
    """Check what can be told where every plugin is installed alone: models and settings of the plugins."""
    if found.plugins is None or catalog is None or not found.whole:
        return
    yield from check_models(file, catalog, found.plugins, around.settings, ask_hub=around.ask_hub)
    yield from check_settings(file, found.plugins)


def _versions(file: BundleFile, sources: Sources) -> Iterable[Finding]:
    with tempfile.TemporaryDirectory(prefix="sie-bundle-") as folder:
        wheels = stand_ins(file, sources.wheels, Path(folder))
        return list(check_versions(file, replace(sources, wheels=wheels)))


def of_any(settings: Settings) -> Settings:
    """Return settings under which every model of the plugins is listed."""
    return settings.model_copy(update={"model_filter": (), "preload": ()})
