"""What a bundle asks the solver for: its plugins, ours by the files of their wheels, the rest by name and range.

A distribution of ours is never asked of a registry, where anybody may own its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from sie_bundle.bundles.reading import BundleFile
from sie_bundle.bundles.schema import Override, PlatformName, PluginEntry
from sie_bundle.errors import BundlingError
from sie_bundle.locks.targets import Target
from sie_bundle.locks.wheels import Wheel

CORE = "sie-core"
OURS = frozenset(
    {
        CORE,
        "sie-sdk",
        "sie-bundle",
        "sie-cluster",
        "sie-cpu",
        "sie-fake",
        "sie-flash",
        "sie-gliner",
        "sie-kit",
        "sie-nats",
        "sie-objectstore",
        "sie-pytorch",
        "sie-sentence-transformers",
        "sie-sglang",
        "sie-text",
    }
)
"""Distributions of this project, whoever owns these names in a registry."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What one environment of a bundle asks for on one platform."""

    bundle: str
    platform: PlatformName
    environment: str
    """Empty for the server's own."""
    target: Target
    requirements: tuple[str, ...]
    """By name and range, from registries."""
    wheels: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Wheels of ours that are asked for, with their extras."""
    overrides: tuple[Override, ...] = ()
    torch: str | None = None
    index: str | None = None

    @property
    def lock_name(self) -> str:
        """The file name of its lock, as PEP 751 wants it."""
        return lock_name(self.platform, self.environment)


def lock_name(platform: str, environment: str = "") -> str:
    """Name the lock of a platform, or of an environment of its own there."""
    return f"pylock.{platform}{'-' if environment else ''}{environment}.toml"


def asked_of(
    file: BundleFile, platform: PlatformName, wheels: Mapping[str, Wheel], environments: Sequence[str] = ()
) -> Iterator[Asked]:
    """Say what the environments of a bundle ask for on a platform, the server's own first.

    Args:
        file: The bundle.
        platform: One of its platforms.
        wheels: Those at hand, ours and others', which win over registries.
        environments: Those that are meant; empty means all.

    Raises:
        BundlingError: A wheel of ours is not at hand, or not of a version that the bundle allows.
    """
    whole, target = file.whole, Target(file.whole.python)
    if not environments:
        yield _of_server(file, platform, wheels, target)
    for name, environment in whole.environments.items():
        here = environment.platforms is None or platform in environment.platforms
        if here and (not environments or name in environments):
            overrides = tuple(environment.overrides)
            yield Asked(whole.name, platform, name, target, tuple(environment.requires), overrides=overrides)


def _of_server(file: BundleFile, platform: PlatformName, wheels: Mapping[str, Wheel], target: Target) -> Asked:
    wanted, by_name = _plugins(file, platform, wheels)
    stated = file.whole.platforms[platform]
    ours = closure(wanted, wheels, target)
    overrides = tuple(file.whole.overrides)
    return Asked(file.whole.name, platform, "", target, tuple(by_name), ours, overrides, stated.torch, stated.index)


def plugins_on(file: BundleFile, platform: PlatformName) -> list[tuple[int, PluginEntry]]:
    """List the plugins that are installed on a platform, with their positions in the file."""
    return [
        (index, plugin)
        for index, plugin in enumerate(file.whole.plugins)
        if plugin.platforms is None or platform in plugin.platforms
    ]


def find_wheel(name: str, wheels: Mapping[str, Wheel]) -> Wheel | None:
    """Find the wheel of a distribution, or that of a plugin by its entry point."""
    by_distribution = wheels.get(canonicalize_name(name))
    return by_distribution or next((wheel for wheel in wheels.values() if name in wheel.plugins), None)


def _plugins(
    file: BundleFile, platform: PlatformName, wheels: Mapping[str, Wheel]
) -> tuple[dict[str, frozenset[str]], list[str]]:
    wanted: dict[str, frozenset[str]] = {CORE: frozenset()}
    by_name: list[str] = []
    for index, plugin in plugins_on(file, platform):
        wheel, where = find_wheel(plugin.distribution, wheels), file.at("plugins", index)
        if wheel is None:
            by_name.append(_from_registry(plugin, where))
            continue
        if not SpecifierSet(plugin.range).contains(wheel.version, prereleases=True):
            raise BundlingError(
                f"{where}: {wheel.name} {plugin.range} is wanted, and {wheel.file.name} is another version: "
                "change the range, or build the wheel that is meant"
            )
        wanted[wheel.name] = wanted.get(wheel.name, frozenset()) | set(plugin.extras)
    return wanted, by_name


def _from_registry(plugin: PluginEntry, where: str) -> str:
    name = canonicalize_name(plugin.distribution)
    ours = name if name in OURS else f"sie-{name}"
    if ours in OURS:
        raise BundlingError(
            f"{where}: no wheel of {ours} is at hand, and it is of this project, so no registry is asked for it: "
            "build it into the folder of --wheels"
        )
    extras = f"[{','.join(sorted(plugin.extras))}]" if plugin.extras else ""
    return f"{name}{extras}{plugin.range}"


def closure(
    wanted: Mapping[str, frozenset[str]], wheels: Mapping[str, Wheel], target: Target
) -> Mapping[str, frozenset[str]]:
    """Add the wheels at hand that the wanted ones need, and theirs, with the extras asked of each.

    Raises:
        BundlingError: One of ours is needed, and is not at hand.
    """
    found: dict[str, frozenset[str]] = {}
    waiting = [(name, extras, "every bundle") for name, extras in wanted.items()]
    while waiting:
        name, extras, by = waiting.pop()
        if name not in wheels:
            raise BundlingError(
                f"no wheel of {name} is at hand, which {by} needs, and it is of this project, so no registry is asked "
                "for it: build it into the folder of --wheels"
            )
        if name in found and extras <= found[name]:
            continue
        found[name] = found.get(name, frozenset()) | extras
        waiting += [
            (canonicalize_name(each.name), frozenset(each.extras), name)
            for each in needs(wheels[name], found[name], target)
            if canonicalize_name(each.name) in OURS | wheels.keys()
        ]
    return dict(sorted(found.items()))


def needs(wheel: Wheel, extras: Sequence[str] | frozenset[str], target: Target) -> list[Requirement]:
    """List what a wheel requires on a target, with some of its extras."""
    return [
        each
        for each in wheel.requires
        if each.marker is None
        or any(each.marker.evaluate({**target.environment, "extra": extra}) for extra in ["", *extras])
    ]
