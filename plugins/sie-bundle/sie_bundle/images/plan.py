"""What goes into an image, and in which layer: those that seldom change come first."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sie_bundle.bundles.schema import PlatformName, WholeBundle
from sie_bundle.errors import BundlingError
from sie_bundle.locks.lock import Lock, LockedPackage
from sie_bundle.locks.requirements import OURS

DATE = 1577836800
"""The date of files and images, in seconds since 1970, where `SOURCE_DATE_EPOCH` gives none: same input, same image."""
LARGE = 40_000_000
"""Bytes of a wheel that is in a layer of the few large ones."""
LAYERS = ("large", "data", "libraries", "plugins")
"""Of one environment; the last holds what its maker builds: ours, and what is small of a folder, as plugins."""
OWN_PREFIX = "/opt/sie"


@dataclass(frozen=True, slots=True)
class Image:
    """An image that is to be built."""

    bundle: WholeBundle
    platform: PlatformName
    locks: tuple[Lock, ...]
    """The server's own first, then those of its other environments."""
    base: str
    version: str
    """That of sie-core in the lock."""
    program: str = "serve"
    """The command of `sie` that it runs where nothing else is asked for."""
    epoch: int = DATE

    @property
    def tag(self) -> str:
        """Its name and tag."""
        if self.program != "serve":
            return f"sie-{self.bundle.name}:{self.version}"
        return f"sie-server:{self.version}-{self.platform}-{self.bundle.name}"

    def plan(self) -> dict[str, Any]:
        """Say what the build's first stage does; requirements are named by their files."""
        return {
            "name": self.tag.partition(":")[0],
            "version": self.tag.partition(":")[2],
            "python": self.bundle.python,
            "epoch": self.epoch,
            "app": LAYERS[-1],
            "environments": [
                {
                    "prefix": prefix_of(lock),
                    "layers": {layer: requirements_file(lock, layer) for layer in layers_of(lock)},
                }
                for lock in self.locks
            ],
        }


def prefix_of(lock: Lock) -> str:
    """Say where an environment is installed."""
    return f"/opt/{lock.environment}" if lock.environment else OWN_PREFIX


def layers_of(lock: Lock) -> dict[str, Lock]:
    """Deal the packages of a lock to layers, each a lock of its own; an empty layer is left out."""
    dealt: dict[str, list[LockedPackage]] = {}
    for package in lock.packages:
        dealt.setdefault(_layer(package), []).append(package)
    return {
        name: Lock(lock.bundle, lock.platform, lock.python, tuple(dealt[name]), lock.environment)
        for name in LAYERS
        if name in dealt
    }


def _layer(package: LockedPackage) -> str:
    large = package.wheel.size >= LARGE
    # A large wheel of a folder is torch where its registry is out of reach, or weights: no release builds it anew.
    if package.wheel.url is None and (not large or package.name in OURS):
        return "plugins"
    if not large:
        return "libraries"
    return "data" if package.wheel.file.endswith("-none-any.whl") else "large"


def requirements_file(lock: Lock, layer: str) -> str:
    """Name the file of a context that lists what a layer holds."""
    return f"requirements/{lock.environment or 'sie'}-{layer}.txt"


def version_of(locks: Sequence[Lock]) -> str:
    """Return the version of the core in a bundle's locks.

    Raises:
        BundlingError: It is in none.
    """
    for package in (package for lock in locks for package in lock.packages):
        if package.name == "sie-core":
            return package.version
    raise BundlingError("the lock holds no sie-core, so it serves nothing: write it anew with `sie bundle lock`")


def epoch() -> int:
    """Return the date of the image's files, from `SOURCE_DATE_EPOCH` where it is set.

    Raises:
        BundlingError: It is no number of seconds.
    """
    stated = os.environ.get("SOURCE_DATE_EPOCH", str(DATE))
    if not stated.isdecimal():
        raise BundlingError(f"SOURCE_DATE_EPOCH={stated}: is no number of seconds since 1970; write one, or unset it")
    return int(stated)
