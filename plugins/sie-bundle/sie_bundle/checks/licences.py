"""Licences of what a bundle holds, as far as its parts tell them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from sie_bundle.bundles.reading import BundleFile
from sie_bundle.checks.findings import Finding
from sie_bundle.checks.installed import installed_plugins, matching, needed
from sie_bundle.locks.targets import Target
from sie_core.catalog import Catalog
from sie_core.contracts import InferenceError

LONGEST = 60
"""Characters of a licence's name; some packages state the whole text."""
_NOT_COMMERCIAL = re.compile(r"(^|[^a-z])nc([^a-z]|$)|non-?commercial", re.IGNORECASE)
_CLASSIFIER = "License ::"


def check_licences(file: BundleFile, catalog: Catalog | None) -> Iterator[Finding]:
    """Tell distributions that state no licence, and models that may not be used commercially."""
    target, there = Target(file.whole.python), installed_plugins()
    for index, plugin in enumerate(file.whole.plugins):
        for found in matching(plugin.distribution, there)[:1]:
            silent = [name for name in needed(found.id, target) if licence_of(name) == ""]
            if silent:
                told = f"{', '.join(sorted(silent))}: no licence is stated; look it up before the image is given away"
                yield Finding(file.at("plugins", index), told, note=True)
    for index, entry in enumerate(file.whole.models if catalog else []):
        licence = _of_model(entry.id, catalog)
        if licence and _NOT_COMMERCIAL.search(licence):
            told = f"{entry.id} has the licence {licence}: not for commercial use"
            yield Finding(file.at("models", index), told, note=True)


def licence_of(name: str) -> str | None:
    """Return the licence that an installed distribution states: empty for none, None where it is not installed."""
    try:
        return _stated(distribution(name))
    except PackageNotFoundError:
        return None


def _stated(found: Distribution) -> str:
    def all_of(field: str) -> list[str]:
        return [str(each) for each in found.metadata.get_all(field, [])]

    stated = [*all_of("License-Expression"), *all_of("License")]
    stated += [each.rpartition(" :: ")[2] for each in all_of("Classifier") if each.startswith(_CLASSIFIER)]
    stated += all_of("License-File")
    return next((" ".join(each.split())[:LONGEST] for each in stated if each.strip()), "")


def _of_model(name: str, catalog: Catalog | None) -> str | None:
    try:
        return catalog.resolve(name).config.license if catalog else None
    except InferenceError:
        return None
