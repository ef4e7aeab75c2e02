"""The plugins of a bundle as they are installed here, with the plugins that they need themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution, entry_points

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sie_bundle.locks.targets import Target
from sie_core.plugins import ENTRY_POINT_GROUP


@dataclass(frozen=True, slots=True)
class Installed:
    """A plugin that is installed in this environment."""

    name: str
    """Of its entry point."""
    distribution: Distribution

    @property
    def id(self) -> str:
        """The canonical name of its distribution."""
        return canonicalize_name(self.distribution.name)


def installed_plugins() -> list[Installed]:
    """List every installed plugin, by entry point."""
    found = [Installed(each.name, each.dist) for each in entry_points(group=ENTRY_POINT_GROUP) if each.dist is not None]
    return sorted(found, key=lambda each: (each.name, each.id))


def matching(name: str, plugins: Iterable[Installed]) -> list[Installed]:
    """Find the plugins of an entry point's or a distribution's name."""
    return [each for each in plugins if each.name == name or each.id == canonicalize_name(name)]


def needed(name: str, target: Target) -> Mapping[str, tuple[str, ...]]:
    """Name the installed distributions that one needs, and theirs: each with the way to it from `name`."""
    ways: dict[str, tuple[str, ...]] = {}
    first = str(canonicalize_name(name))
    waiting: list[tuple[str, tuple[str, ...]]] = [(first, (first,))]
    while waiting:
        here, way = waiting.pop()
        if here in ways:
            continue
        ways[here] = way
        waiting += [(each, (*way, each)) for each in requirements_of(here, target)]
    return ways


def requirements_of(name: str, target: Target, extras: Iterable[str] = ("",)) -> Iterator[str]:
    """Name what an installed distribution requires on a target; nothing where it is not installed."""
    try:
        written = distribution(name).requires or []
    except PackageNotFoundError:
        return
    for requirement in map(Requirement, written):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({**target.environment, "extra": extra}) for extra in extras):
            yield canonicalize_name(requirement.name)
