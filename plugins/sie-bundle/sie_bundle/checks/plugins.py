"""Plugins of a bundle: found, of the right version, made for this contract, without clashes, fit for its platforms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from sie_bundle.bundles.reading import BundleFile
from sie_bundle.bundles.schema import PluginEntry
from sie_bundle.checks.findings import Finding
from sie_bundle.checks.installed import Installed, installed_plugins, matching, needed, requirements_of
from sie_bundle.locks.requirements import find_wheel
from sie_bundle.locks.targets import Target
from sie_bundle.locks.wheels import Wheel
from sie_core.catalog import did_you_mean
from sie_core.contracts import PluginError
from sie_core.plugins import PluginReport, PluginSet, discover, unserved
from sie_core.settings import Settings


@dataclass(frozen=True, slots=True)
class PluginCheck:
    """What was found of the plugins."""

    findings: tuple[Finding, ...]
    plugins: PluginSet | None
    """What those of the bundle register here; None where that cannot be told."""
    whole: bool
    """Whether every one of them is installed and active here."""


def check_plugins(
    file: BundleFile, settings: Settings, builtins: Iterable[object], wheels: Mapping[str, Wheel]
) -> PluginCheck:
    """Check the plugins of a bundle as they are installed here.

    Args:
        file: The bundle.
        settings: Those in force; which plugins they allow counts not.
        builtins: The plugins of the core.
        wheels: Wheels at hand, which are told apart from what is not there at all.
    """
    there = installed_plugins()
    findings: list[Finding] = []
    found: dict[int, list[Installed]] = {}
    for index, plugin in enumerate(file.whole.plugins):
        found[index] = matching(plugin.distribution, there)
        findings += _of_one(file, index, plugin, found[index], wheels, there)
    findings += _twice(file, found)
    findings += _cycles(file, found)
    names = _all_names(file, found, there)
    plugins, told = _discover(file, names, settings, builtins)
    findings += told
    if plugins is not None:
        findings += _broken(file, found, plugins)
        findings += _unfit_for_cpu(file, found, plugins)
    whole = all(found.values()) and not any(not each.note for each in findings)
    return PluginCheck(tuple(findings), plugins, whole)


def _of_one(
    file: BundleFile,
    index: int,
    plugin: PluginEntry,
    found: Sequence[Installed],
    wheels: Mapping[str, Wheel],
    there: Sequence[Installed],
) -> Iterator[Finding]:
    where, wheel = file.at("plugins", index), find_wheel(plugin.distribution, wheels)
    if found:
        version = found[0].distribution.version
        if not SpecifierSet(plugin.range).contains(version, prereleases=True):
            told = (
                f"{plugin.distribution} {plugin.range} is wanted, and {version} is installed here: install one of them"
            )
            yield Finding(where, f"{told}, or change the range")
    elif wheel is None:
        hint = did_you_mean(plugin.distribution, sorted({each.name for each in there}))
        yield Finding(
            where,
            f"no plugin {plugin.distribution!r} is installed here, and no wheel of it is at hand.{hint} Installed: "
            f"{', '.join(each.name for each in there)}. Correct the name, install it, or name a folder with --wheels",
        )
    elif not wheel.plugins:
        yield Finding(where, f"{wheel.file.name} registers no plugin: it has no entry point in the group `sie`")
    elif wheel.interfaces is None:
        yield Finding(where, f"{wheel.file.name} states no INTERFACES: take a release of the plugin that does")
    elif fault := unserved(wheel.interfaces):
        yield Finding(where, f"{wheel.file.name} {fault}")
    else:
        told = f"{wheel.name} is at hand as a wheel, and not installed here: its families and claims were not checked"
        yield Finding(where, told, note=True)


def _twice(file: BundleFile, found: Mapping[int, Sequence[Installed]]) -> Iterator[Finding]:
    first: dict[str, int] = {}
    for index, plugin in enumerate(file.whole.plugins):
        name = found[index][0].id if found[index] else canonicalize_name(plugin.distribution)
        before = first.setdefault(name, index)
        if before != index:
            other = file.whole.plugins[before].distribution
            told = f"{plugin.distribution} is the plugin {other} of {file.at('plugins', before)} again: leave one out"
            yield Finding(file.at("plugins", index), told)


def _cycles(file: BundleFile, found: Mapping[int, Sequence[Installed]]) -> Iterator[Finding]:
    target = Target(file.whole.python)
    for index, plugins in found.items():
        for plugin in plugins[:1]:
            for name, way in needed(plugin.id, target).items():
                if name != plugin.id and plugin.id in requirements_of(name, target):
                    told = " -> ".join([*way, plugin.id])
                    yield Finding(
                        file.at("plugins", index), f"{told}: they need one another: have one not need the other"
                    )


def _all_names(
    file: BundleFile, found: Mapping[int, Sequence[Installed]], there: Sequence[Installed]
) -> tuple[str, ...]:
    """Name the distributions that are active in the bundle's images: its plugins, and plugins that these need."""
    target, ids = Target(file.whole.python), {each.id for each in there}
    of_bundle = [plugin.id for plugins in found.values() for plugin in plugins]
    return tuple(sorted({name for each in of_bundle for name in needed(each, target) if name in ids}))


def _discover(
    file: BundleFile, names: tuple[str, ...], settings: Settings, builtins: Iterable[object]
) -> tuple[PluginSet | None, list[Finding]]:
    if not names:
        return None, []
    chosen = {"plugins": names, "plugins_blocked": (), "strict_plugins": False}
    try:
        return discover(settings.model_copy(update=chosen), builtins), []
    except PluginError as error:
        return None, [Finding(file.at("plugins"), str(error))]


def _broken(file: BundleFile, found: Mapping[int, Sequence[Installed]], plugins: PluginSet) -> Iterator[Finding]:
    lines = {(each.name, each.id): index for index, of_one in found.items() for each in of_one}
    for report in plugins.reports:
        if report.state != "broken":
            continue
        index = lines.get((report.name, canonicalize_name(report.distribution)))
        where = file.at("plugins") if index is None else file.at("plugins", index)
        yield Finding(where, f"{report} is broken: {report.cause}")


def _unfit_for_cpu(file: BundleFile, found: Mapping[int, Sequence[Installed]], plugins: PluginSet) -> Iterator[Finding]:
    if "cpu" not in file.whole.platforms:
        return
    for index, plugin in enumerate(file.whole.plugins):
        reports = [_report(each, plugins) for each in found[index]]
        devices = [kinds for report in reports if report for kinds in _devices(report, plugins)]
        if (plugin.platforms is None or "cpu" in plugin.platforms) and devices and not any(map(_on_cpu, devices)):
            kinds = ", ".join(sorted(frozenset[str]().union(*devices)))
            told = f"{plugin.distribution} serves {kinds} alone, and the bundle has the platform cpu"
            yield Finding(
                file.at("plugins", index), f"{told}: write {{distribution: {plugin.distribution}, platforms: [cuda]}}"
            )


def _report(plugin: Installed, plugins: PluginSet) -> PluginReport | None:
    return next((each for each in plugins.reports if each.name == plugin.name), None)


def _devices(report: PluginReport, plugins: PluginSet) -> Iterator[frozenset[str]]:
    """List the kinds of devices of each family and runner that a plugin registers."""
    for name in report.registers.get("sie_model_families", ()):
        yield plugins.families[name].devices
    runners = report.registers.get("sie_runners", ())
    yield from (runner.devices for runner in plugins.runners if runner.name in runners)


def _on_cpu(devices: frozenset[str]) -> bool:
    return not devices or "cpu" in devices
