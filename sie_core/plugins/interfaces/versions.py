"""Checks the versions of the interfaces that a plugin states against those that this core serves.

A plugin states one version for each hook that it implements: `INTERFACES = ("sie.family/1",)`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from sie_core import __version__
from sie_core.contracts import DeprecatedWarning
from sie_core.plugins.registration import REGISTRATIONS, Registration

ATTRIBUTE = "INTERFACES"
OLD = "CONTRACT_VERSION"
"""What plugins stated before each interface had a version; 1 is the only value there was."""
OF_OLD = {"sie.runner": 2}
"""The versions that this value stands for; 1 for every other interface."""
PAGE = "docs/extend/compatibility.md"


class UnservedVersion(Exception):
    """A plugin states no version of an interface, or one that is not served; the message has the remedy."""


def check_versions(plugin: object, module: str, hooks: Iterable[str]) -> None:
    """Check what `plugin` states for the `hooks` that it implements. The old statement warns that it is deprecated.

    Raises:
        UnservedVersion: See there.
    """
    rows = {hook: REGISTRATIONS[hook] for hook in hooks}
    line = f"{ATTRIBUTE} = {tuple(row.current for row in rows.values())}"
    stated = getattr(plugin, ATTRIBUTE, None)
    if stated is None:
        stated = _of_old(plugin, module, line, rows.values())
    if not isinstance(stated, tuple | list) or not all(isinstance(each, str) for each in stated):
        raise UnservedVersion(f"{module} states {ATTRIBUTE} = {stated!r:.80}, not a tuple of strings; write {line}")
    for hook, row in rows.items():
        if not _of(row, stated):
            raise UnservedVersion(f"{module} implements {hook} and states no version of {row.interface}; write {line}")
    if fault := unserved(stated, rows.values()):
        raise UnservedVersion(f"{module} {fault}")


def unserved(stated: Iterable[str], rows: Iterable[Registration] = REGISTRATIONS.values()) -> str | None:
    """Say of which interface no stated version is served, with the remedy; None if of each that is stated, one is."""
    for row in rows:
        versions = _of(row, stated)
        if not versions or set(versions) & set(row.versions):
            continue
        newer = max(versions) > max(row.versions)
        remedy = "install a newer sie-core" if newer else "install a newer release of the plugin"
        told = ", ".join(f"{row.interface}/{version}" for version in versions)
        return (
            f"was written for {told}, and sie-core {__version__} serves {', '.join(row.served)}: {remedy}; {PAGE} says "
            "what changed"
        )
    return None


def _of(row: Registration, stated: Iterable[str]) -> list[int]:
    """List the versions of an interface among strings like `sie.family/1`."""
    parts = (each.partition("/") for each in stated)
    return [int(version) for name, _, version in parts if name == row.interface and version.isdecimal()]


def _of_old(plugin: object, module: str, line: str, rows: Iterable[Registration]) -> tuple[str, ...]:
    old = getattr(plugin, OLD, None)
    if old is None:
        raise UnservedVersion(f"{module} does not state the interfaces that it was written for; write {line}")
    if old != 1:
        raise UnservedVersion(f"{module} states {OLD} = {old!r:.20}, and there was only 1; write {line} instead")
    warnings.warn(DeprecatedWarning(f"{OLD} of {module}", f"write {line}", "1.2"), stacklevel=2)
    return tuple(f"{row.interface}/{OF_OLD.get(row.interface, 1)}" for row in rows)
