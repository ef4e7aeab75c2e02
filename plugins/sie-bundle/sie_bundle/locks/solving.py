"""Solves what a bundle asks for into a lock, by `uv pip compile` in a folder of its own."""

from __future__ import annotations

import json
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from packaging.markers import Marker
from packaging.utils import canonicalize_name

from sie_bundle.bundles.names import LEFT_OUT
from sie_bundle.bundles.schema import Override
from sie_bundle.errors import BundlingError, Unsolvable
from sie_bundle.locks.conflicts import tell_conflict
from sie_bundle.locks.lock import Lock, LockedPackage, LockedWheel, write_lock
from sie_bundle.locks.requirements import OURS, Asked
from sie_bundle.locks.wheels import Wheel
from sie_bundle.tools import run, uv

NO_INDEX = "none"
"""In place of a platform's index: torch comes from where everything does."""
_UNFIXED = ("UV_EXCLUDE_NEWER", "UV_RESOLUTION", "UV_PRERELEASE", "UV_CONSTRAINT", "UV_OVERRIDE", "UV_NO_BINARY")
"""Variables that would make a lock differ from one machine to the next."""
_VIA = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?(?:==| @ )\S+.*# via (.+)")
_PYPI_FILE = re.compile(r"/packages/[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{60}/[^/]+\Z")
_PYPI_FILES = "files.pythonhosted.org"


@dataclass(frozen=True, slots=True)
class Sources:
    """Where wheels are looked for, beside the registry that uv is configured with."""

    wheels: Mapping[str, Wheel]
    """At hand; these names are never looked up."""
    find_links: tuple[Path, ...] = ()
    """Folders of wheels that are looked through too."""
    index: str | None = None
    """In place of the platform's index."""
    no_registry: bool = False
    """Whether nothing but folders is asked."""
    exclude_newer: str | None = None
    """A date: what was uploaded later counts not."""

    def until(self, date: str | None) -> Sources:
        """Return the same as they were at a date; None is now."""
        return replace(self, exclude_newer=date)


def solve(asked: Asked, sources: Sources, where: str, *, keep: Lock | None = None) -> Lock:
    """Find versions for all that is asked for.

    Args:
        asked: What for.
        sources: Where wheels are.
        where: The bundle's file and line, for messages.
        keep: A lock whose versions are kept where they fulfil what is asked.

    Raises:
        Unsolvable: There are none; says who wants what.
        BundlingError: The solver failed otherwise, or a distribution of ours would come from a registry.
    """
    with tempfile.TemporaryDirectory(prefix="sie-bundle-") as folder:
        written = _compile(asked, sources, Path(folder), where, keep)
        found = tuple(_packages(written, asked, sources, where))
        needs = _needs(asked, sources, Path(folder), found)
    packages = tuple(replace(each, needs=needs.get(each.name, ())) for each in found)
    return Lock(
        asked.bundle,
        asked.platform,
        asked.target.python,
        packages,
        asked.environment,
        asked.target.marker,
        sources.exclude_newer,
    )


def _compile(asked: Asked, sources: Sources, folder: Path, where: str, keep: Lock | None) -> Mapping[str, Any]:
    (folder / "pyproject.toml").write_text(_project(asked, sources), encoding="utf-8")
    constraints = [_by_file(wheel) for name, wheel in sorted(sources.wheels.items()) if name not in asked.wheels]
    (folder / "constraints.txt").write_text("\n".join(constraints), encoding="utf-8")
    (folder / "overrides.txt").write_text("\n".join(map(_overriding, asked.overrides)), encoding="utf-8")
    output = folder / "pylock.toml"
    if keep is not None:
        output.write_text(write_lock(keep), encoding="utf-8")
    command = [*uv(), *_arguments(asked, sources), "--format", "pylock.toml", "--output-file", str(output)]
    done = run(command, folder=folder, without=_UNFIXED)
    if done.returncode:
        platform = f"{asked.platform} ({asked.environment})" if asked.environment else asked.platform
        raise Unsolvable(tell_conflict(where, platform, done.stderr))
    return tomllib.loads(output.read_text(encoding="utf-8"))


def _needs(
    asked: Asked, sources: Sources, folder: Path, found: Sequence[LockedPackage]
) -> Mapping[str, tuple[str, ...]]:
    """Ask who needs whom of the versions that were found: the format of locks leaves it out."""
    pins = [f"{each.name}=={each.version}" for each in found if each.name not in sources.wheels]
    with (folder / "constraints.txt").open("a", encoding="utf-8") as stream:
        stream.write("\n" + "\n".join(pins))
    command = [*uv(), *_arguments(asked, sources), "--format", "requirements.txt", "--annotation-style", "line"]
    done = run(command, folder=folder, without=_UNFIXED)
    if done.returncode:
        raise BundlingError(f"uv solves what it has solved no more: {done.stderr.strip()}")
    names, needs = {each.name for each in found}, dict[str, set[str]]()
    for line in done.stdout.splitlines():
        if match := _VIA.match(line):
            for by in match[2].split(","):
                needs.setdefault(canonicalize_name(by.strip()), set()).add(canonicalize_name(match[1]))
    return {name: tuple(sorted(needed & names)) for name, needed in needs.items()}


def _project(asked: Asked, sources: Sources) -> str:
    """Write a project whose dependencies are what is asked for: only so can one distribution have its own index."""
    wanted = [_by_file(sources.wheels[name], extras) for name, extras in asked.wheels.items()]
    wanted += asked.requirements
    if asked.torch:
        wanted.append(f"torch==={asked.torch}")
    text = (
        f'[project]\nname = "bundle"\nversion = "0"\nrequires-python = ">={asked.target.python}"\n'
        f"dependencies = {json.dumps(wanted)}\n"
    )
    index = asked.index if sources.index is None else sources.index
    if asked.torch and index and index != NO_INDEX:
        text += '[tool.uv.sources]\ntorch = { index = "platform" }\n[[tool.uv.index]]\nname = "platform"\n'
        text += f"url = {json.dumps(index)}\nexplicit = true\n"
    return text


def _arguments(asked: Asked, sources: Sources) -> Iterator[str]:
    yield from ("pip", "compile", "pyproject.toml", "--quiet", "--no-header")
    yield from (
        "--python",
        sys.executable,
        "--python-version",
        asked.target.python,
        "--python-platform",
        asked.target.uv_platform,
    )
    yield from ("--only-binary", ":all:", "--constraints", "constraints.txt", "--overrides", "overrides.txt")
    for folder in sources.find_links:
        yield from ("--find-links", str(folder.absolute()))
    if sources.no_registry:
        yield "--no-index"
    if sources.exclude_newer:
        yield from ("--exclude-newer", sources.exclude_newer)


def _by_file(wheel: Wheel, extras: Sequence[str] | frozenset[str] = ()) -> str:
    named = f"[{','.join(sorted(extras))}]" if extras else ""
    return f"{wheel.name}{named} @ {wheel.file.absolute().as_uri()}"


def _overriding(override: Override) -> str:
    if override.spec == LEFT_OUT:
        return f'{override.package} ; python_version < "3"'  # a marker that holds nowhere
    return f"{override.package}{override.spec if override.spec[0] in '<>=!~' else f'=={override.spec}'}"


def _packages(data: Mapping[str, Any], asked: Asked, sources: Sources, where: str) -> Iterator[LockedPackage]:
    for package in data.get("packages", []):
        name = canonicalize_name(package["name"])
        if "marker" in package and not Marker(package["marker"]).evaluate(dict(asked.target.environment)):
            continue
        if name in sources.wheels:
            wheel = sources.wheels[name]
            yield LockedPackage(name, wheel.version, LockedWheel(wheel.file.name, wheel.size, wheel.sha256))
        elif name in OURS:
            raise BundlingError(
                f"{where}: something asks for {name}, which is of this project, and a registry's {name} "
                f"{package.get('version')} would be installed: build ours into the folder of --wheels"
            )
        else:
            yield LockedPackage(name, package["version"], _best(name, package, asked, where))


def _best(name: str, package: Mapping[str, Any], asked: Asked, where: str) -> LockedWheel:
    """Choose the wheel that installers would choose, so that a lock has one a package."""
    ranked = []
    for wheel in package.get("wheels", []):
        file = _file_name(wheel)
        if (rank := asked.target.rank(file)) is not None:
            ranked.append((rank, file, wheel))
    if not ranked:
        raise BundlingError(
            f"{where}: {name} {package.get('version')} has no wheel for {asked.target.uv_platform} and Python "
            f"{asked.target.python}: bound its version, or build a wheel of it into a folder of --find-links"
        )
    _, file, wheel = min(ranked, key=lambda each: each[:2])
    url, local = _place(wheel)
    sha256 = (wheel.get("hashes") or {}).get("sha256")
    size = wheel.get("size") or (local.stat().st_size if local else None)
    if not sha256 or not size:
        lacking = "size" if sha256 else "SHA-256"
        raise BundlingError(
            f"{where}: the index of {name} {package.get('version')} tells no {lacking} of {file}: download the wheel "
            "into a folder, and name that with --find-links"
        )
    return LockedWheel(file, size, sha256, url)


def _file_name(wheel: Mapping[str, Any]) -> str:
    return str(wheel.get("name") or Path(unquote(urlsplit(str(wheel.get("url") or wheel.get("path"))).path)).name)


def _place(wheel: Mapping[str, Any]) -> tuple[str | None, Path | None]:
    """Return the public URL of a wheel, or the local file."""
    parts = urlsplit(str(wheel.get("url") or wheel.get("path")))
    if parts.scheme in ("", "file"):
        return None, Path(unquote(parts.path))
    if _PYPI_FILE.match(parts.path):  # a mirror's copy: the file is known by where everybody finds it
        return urlunsplit(("https", _PYPI_FILES, parts.path, "", "")), None
    host = parts.netloc.rpartition("@")[2]  # without what a password may be in
    return urlunsplit((parts.scheme, host, parts.path, "", "")), None
