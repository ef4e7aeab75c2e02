"""Locks as files: `pylock.<platform>.toml` of PEP 751, one wheel a package, each with its hash and size.

A wheel of a registry is named by its public URL; one of a local folder, ours among them, by its path beside the lock.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from sie_bundle.errors import BundlingError

FOLDER = "wheels"
"""Beside a lock: where the wheels lie that it names by path."""
LARGEST_LOCK = 2**24
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True, slots=True)
class LockedWheel:
    """The one wheel of a package."""

    file: str
    """Its name."""
    size: int
    sha256: str
    url: str | None = None
    """Where a registry holds it; None for a wheel of a local folder."""

    @property
    def path(self) -> str | None:
        """Where it lies beside the lock; None for a wheel of a registry."""
        return None if self.url else f"{FOLDER}/{self.file}"


@dataclass(frozen=True, slots=True)
class LockedPackage:
    """A distribution of a lock."""

    name: str
    """Canonical."""
    version: str
    wheel: LockedWheel
    needs: tuple[str, ...] = ()
    """Canonical names of the packages of the lock that it requires."""


@dataclass(frozen=True, slots=True)
class Lock:
    """Every wheel of one environment, by name."""

    bundle: str
    platform: str
    python: str
    packages: tuple[LockedPackage, ...]
    environment: str = ""
    """Empty for the server's own."""
    marker: str = ""
    exclude_newer: str | None = None

    @property
    def size(self) -> int:
        """Bytes of all wheels."""
        return sum(package.wheel.size for package in self.packages)

    def requirements(self) -> str:
        """Write the lock as requirements with hashes, which pip and uv install with `--require-hashes`."""
        return "".join(f"{each.name}=={each.version} --hash=sha256:{each.wheel.sha256}\n" for each in self.packages)


def write_lock(lock: Lock) -> str:
    """Write a lock as TOML: the same lock, the same bytes."""
    head = {
        "lock-version": "1.0",
        "environments": [lock.marker] if lock.marker else [],
        "requires-python": f"=={lock.python}.*",
        "created-by": "sie",
    }
    tool = {"bundle": lock.bundle, "platform": lock.platform, "environment": lock.environment, "python": lock.python}
    if lock.exclude_newer:
        tool["exclude-newer"] = lock.exclude_newer
    parts = ["".join(f"{name} = {json.dumps(value)}\n" for name, value in head.items())]
    parts += [_package(each) for each in sorted(lock.packages, key=lambda each: each.name)]
    parts.append("[tool.sie]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in tool.items()))
    return "\n".join(parts)


def _package(package: LockedPackage) -> str:
    wheel = package.wheel
    where = f"url = {json.dumps(wheel.url)}" if wheel.url else f"path = {json.dumps(wheel.path)}"
    needs = ", ".join(f"{{ name = {json.dumps(each)} }}" for each in package.needs)
    return (
        f"[[packages]]\nname = {json.dumps(package.name)}\nversion = {json.dumps(package.version)}\n"
        f"dependencies = [{needs}]\n"
        f"[[packages.wheels]]\nname = {json.dumps(wheel.file)}\n{where}\nsize = {wheel.size}\n"
        f'hashes = {{ sha256 = "{wheel.sha256}" }}\n'
    )


def read_lock(file: Path) -> Lock:
    """Read a lock that `write_lock` wrote.

    Raises:
        BundlingError: It cannot be read, or a package of it has no wheel, hash, size or place that is safe to use.
    """
    try:
        with file.open("rb") as stream:
            data = tomllib.loads(stream.read(LARGEST_LOCK).decode("utf-8"))
    except OSError as error:
        raise BundlingError(f"{file}: cannot be read: {error.strerror}; write it with `sie bundle lock`") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BundlingError(f"{file}: no TOML: {error}; write it anew with `sie bundle lock`") from None
    try:
        tool = data["tool"]["sie"]
        lock = Lock(
            bundle=str(tool["bundle"]),
            platform=str(tool["platform"]),
            python=str(tool["python"]),
            packages=tuple(_read_package(each) for each in data["packages"]),
            environment=str(tool["environment"]),
            marker=next(iter(data.get("environments", [])), ""),
            exclude_newer=tool.get("exclude-newer"),
        )
    except _Unfit as error:
        raise BundlingError(f"{file}: {error}: write the lock anew with `sie bundle lock`") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise BundlingError(
            f"{file}: no lock of a bundle ({error!r} is missing): write it with `sie bundle lock`"
        ) from None
    names = [package.name for package in lock.packages]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise BundlingError(f"{file}: {', '.join(twice)}: locked twice: write the lock anew with `sie bundle lock`")
    return lock


class _Unfit(Exception):
    """A package of a lock cannot be used; the message names it and says why."""


def _read_package(data: Mapping[str, Any]) -> LockedPackage:
    name, version = str(data["name"]), str(data["version"])
    wheels = data.get("wheels") or []
    if len(wheels) != 1 or data.keys() & {"vcs", "directory", "archive", "sdist"}:
        raise _Unfit(f"{name}: one wheel is wanted, no source and no archive")
    wheel = wheels[0]
    url, path = wheel.get("url"), wheel.get("path")
    file = str(wheel.get("name") or Path(unquote(urlsplit(url or "").path)).name)
    try:
        its_name, its_version, _, _ = parse_wheel_filename(file)
    except InvalidWheelFilename as error:
        raise _Unfit(f"{name}: {error}") from None
    if (its_name, str(its_version)) != (canonicalize_name(name), version) or "/" in file:
        raise _Unfit(f"{name}: {file} is no wheel of {name} {version}")
    if (url is None) == (path is None) or (path is not None and path != f"{FOLDER}/{file}"):
        raise _Unfit(f"{name}: a wheel lies at a URL, or at {FOLDER}/{file}")
    if url is not None and urlsplit(url).scheme not in {"https", "http"}:
        raise _Unfit(f"{name}: {url} is no URL of a registry")
    sha256, size = (wheel.get("hashes") or {}).get("sha256"), wheel.get("size")
    if not isinstance(sha256, str) or not _SHA256.match(sha256):
        raise _Unfit(f"{name}: its wheel has no SHA-256")
    if type(size) is not int or size <= 0:
        raise _Unfit(f"{name}: its wheel has no size")
    needs = tuple(str(each["name"]) for each in data.get("dependencies", []))
    return LockedPackage(canonicalize_name(name), version, LockedWheel(file, size, sha256, url), needs)
