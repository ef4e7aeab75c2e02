"""Versions of a bundle: solvable on each platform, and no override that has expired or is not needed."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.utils import canonicalize_name

from sie_bundle.bundles.names import LEFT_OUT
from sie_bundle.bundles.reading import BundleFile
from sie_bundle.bundles.schema import Override
from sie_bundle.checks.findings import Finding
from sie_bundle.checks.installed import installed_plugins, matching, needed
from sie_bundle.errors import BundlingError, ToolMissing, Unsolvable
from sie_bundle.locks.requirements import CORE, OURS, Asked, asked_of
from sie_bundle.locks.solving import Sources, solve
from sie_bundle.locks.targets import Target
from sie_bundle.locks.wheels import Wheel, read_wheel


def check_dates(file: BundleFile, today: date) -> Iterator[Finding]:
    """Find overrides that have to be looked at again, and those of one package."""
    for path, overrides in _overrides(file):
        packages: dict[str, int] = {}
        for index, override in enumerate(overrides):
            where = file.at(*path, index)
            if override.until is not None and override.until < today:
                told = f"the override of {override.package} was meant until {override.until}"
                yield Finding(where, f"{told}: see whether it is still needed; leave it out, or give a later day")
            if packages.setdefault(canonicalize_name(override.package), index) != index:
                yield Finding(where, f"{override.package} is overridden twice: leave one out")


def check_versions(file: BundleFile, sources: Sources) -> Iterator[Finding]:
    """Solve every environment on every platform; without each of its overrides, too, which must not be solvable.

    Raises:
        ToolMissing: The solver is not installed.
    """
    for platform in file.whole.platforms:
        try:
            for asked in asked_of(file, platform, sources.wheels):
                yield from _of_one(file, asked, sources)
        except ToolMissing:
            raise
        except BundlingError as error:
            yield _finding(error, file)


def _of_one(file: BundleFile, asked: Asked, sources: Sources) -> Iterator[Finding]:
    field = "environments" if asked.environment else "plugins"
    path = [field, asked.environment] if asked.environment else [field]
    lock = solve(asked, sources, file.at(*path))
    names = {package.name for package in lock.packages}
    of_overrides = [*path, "overrides"] if asked.environment else ["overrides"]
    for index, override in enumerate(asked.overrides):
        where, name = file.at(*of_overrides, index), canonicalize_name(override.package)
        is_asked, is_left_out = name in names, override.spec == LEFT_OUT
        if is_asked or is_left_out:
            others = tuple(each for each in asked.overrides if each is not override)
            try:
                without = solve(replace(asked, overrides=others), sources, where)
            except Unsolvable:
                continue
            is_asked = name in {package.name for package in without.packages}
        if not is_asked:
            yield Finding(where, f"nothing on {asked.platform} asks for {override.package}: leave the override out")
        elif not is_left_out:
            told = f"the override of {override.package} is no longer needed on {asked.platform}"
            yield Finding(where, f"{told}: all is solvable without it; leave it out")


def _finding(error: BundlingError, file: BundleFile) -> Finding:
    """Take the file and line out of a message that begins with them."""
    text = str(error)
    if text.startswith(f"{file.path}:"):
        line, _, message = text.removeprefix(f"{file.path}:").partition(": ")
        return Finding(f"{file.path}:{line}", message)
    return Finding(file.at("plugins"), text)


def _overrides(file: BundleFile) -> Iterator[tuple[tuple[str, ...], Iterable[Override]]]:
    yield ("overrides",), file.whole.overrides
    for name, environment in file.whole.environments.items():
        yield ("environments", name, "overrides"), environment.overrides


def stand_ins(file: BundleFile, wheels: Mapping[str, Wheel], folder: Path) -> Mapping[str, Wheel]:
    """Add wheels that hold nothing but the metadata of what is installed here, for what there is no wheel of.

    So versions can be solved without a build: those of our distributions that the bundle needs, and of its plugins.

    Args:
        file: The bundle.
        wheels: Those at hand.
        folder: Where to write.
    """
    target, there = Target(file.whole.python), installed_plugins()
    ids = [each.id for plugin in file.whole.plugins for each in matching(plugin.distribution, there)[:1]]
    wanted = {name for each in [CORE, *ids] for name in needed(each, target) if name in OURS} | set(ids)
    made = dict(wheels)
    for name in sorted(wanted - wheels.keys()):
        made[name] = _metadata_alone(distribution(name), folder)
    return made


def _metadata_alone(installed: Distribution, folder: Path) -> Wheel:
    plain = canonicalize_name(installed.name).replace("-", "_")
    info = f"{plain}-{installed.version}.dist-info"
    files = {
        f"{info}/METADATA": installed.read_text("METADATA") or "",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: sie\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": installed.read_text("entry_points.txt") or "",
    }
    records = [f"{path},sha256={_digest(text)},{len(text.encode())}\n" for path, text in files.items()]
    files[f"{info}/RECORD"] = "".join([*records, f"{info}/RECORD,,\n"])
    file = folder / f"{plain}-{installed.version}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return read_wheel(file)


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
