"""The bundles of one folder beside each other: one default, names and priorities that tell them apart."""

from __future__ import annotations

from collections.abc import Iterator

from sie_bundle.bundles.names import FILE
from sie_bundle.bundles.reading import BundleError, BundleFile
from sie_bundle.checks.findings import Finding


def check_siblings(file: BundleFile) -> Iterator[Finding]:
    """Compare a bundle with those beside its folder; one that cannot be read is named and left aside."""
    whole = file.whole
    for path in sorted(file.path.absolute().parent.parent.glob(f"*/{FILE}")):
        if path.samefile(file.path):
            continue
        try:
            other = BundleFile.read(path).whole
        except BundleError:
            yield Finding(
                f"{path}:1", "cannot be used, so it was not compared: `sie bundle check` of it tells why", note=True
            )
            continue
        if other.name == whole.name:
            yield Finding(file.at("name"), f"{whole.name!r} is the name of {path} too: rename one of them")
        if other.default and whole.default:
            yield Finding(file.at("default"), f"{other.name} is the default already ({path}): one bundle can be")
        if other.priority == whole.priority:
            told = (
                f"{other.name} has the priority {whole.priority} too, so their names would decide what serves a model"
            )
            yield Finding(file.at("priority"), f"{told}: give one another number")
