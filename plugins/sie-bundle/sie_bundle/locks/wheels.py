"""Wheels in a folder: what each says of itself, and its hash and size. Nothing of them is imported."""

from __future__ import annotations

import ast
import configparser
import hashlib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from email.parser import HeaderParser
from functools import cached_property
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from sie_bundle.errors import BundlingError

ENTRY_POINT_GROUP = "sie"
LARGEST_METADATA = 2**20


@dataclass(frozen=True)
class Wheel:
    """A wheel file and its metadata."""

    file: Path
    name: str
    """Canonical."""
    version: str
    requires: tuple[Requirement, ...] = ()
    plugins: tuple[str, ...] = ()
    """Names of the plugins it registers by entry point."""
    interfaces: tuple[str, ...] | None = None
    """What the module of its first plugin states as `INTERFACES`; empty if it states their oldest versions."""

    @cached_property
    def sha256(self) -> str:
        """Its hash, in hex."""
        return sha256_of(self.file)

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.file.stat().st_size


def sha256_of(file: Path) -> str:
    """Hash a file, in hex."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_wheels(folder: Path) -> Mapping[str, Wheel]:
    """Read the wheels of a folder, by canonical name.

    Raises:
        BundlingError: The folder cannot be listed, a file is no wheel, or two are of one distribution.
    """
    try:
        files = sorted(folder.glob("*.whl")) if folder.is_dir() else None
    except OSError as error:
        raise BundlingError(f"{folder}: cannot be read: {error.strerror}") from error
    if files is None:
        raise BundlingError(f"{folder}: no folder of wheels; name one with --wheels")
    wheels: dict[str, Wheel] = {}
    for file in files:
        wheel = read_wheel(file)
        if (first := wheels.setdefault(wheel.name, wheel)) is not wheel:
            raise BundlingError(
                f"{folder}: {first.file.name} and {file.name} are of one distribution: leave the one that is meant"
            )
    return wheels


def read_wheel(file: Path) -> Wheel:
    """Read what a wheel says of itself.

    Raises:
        BundlingError: It is no wheel.
    """
    try:
        name, version, _, _ = parse_wheel_filename(file.name)
        with zipfile.ZipFile(file) as archive:
            folder = next(
                each.rpartition("/")[0] for each in archive.namelist() if each.endswith(".dist-info/METADATA")
            )
            metadata = HeaderParser().parsestr(_text(archive, f"{folder}/METADATA"))
            entries = f"{folder}/entry_points.txt"
            plugins = _plugins(_text(archive, entries)) if entries in archive.namelist() else {}
            interfaces = next((_interfaces(archive, module) for module in plugins.values()), None)
        requires = tuple(Requirement(each) for each in metadata.get_all("Requires-Dist", []))
    except InvalidWheelFilename as error:
        raise BundlingError(f"{file}: {error}") from None
    except (OSError, zipfile.BadZipFile, StopIteration, KeyError, UnicodeDecodeError, InvalidRequirement) as error:
        raise BundlingError(
            f"{file}: no wheel that can be read ({error or 'it holds no METADATA'}): build it again"
        ) from error
    if canonicalize_name(str(metadata["Name"])) != name or str(metadata["Version"]) != str(version):
        raise BundlingError(
            f"{file}: its metadata are those of {metadata['Name']} {metadata['Version']}: build it again"
        )
    return Wheel(file.absolute(), name, str(version), requires, tuple(plugins), interfaces)


def _text(archive: zipfile.ZipFile, member: str) -> str:
    with archive.open(member) as stream:
        return stream.read(LARGEST_METADATA).decode("utf-8")


def _plugins(text: str) -> dict[str, str]:
    """Return the module of each plugin."""
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(text)
    except configparser.Error:
        return {}
    return dict(parser[ENTRY_POINT_GROUP]) if parser.has_section(ENTRY_POINT_GROUP) else {}


def _interfaces(archive: zipfile.ZipFile, module: str) -> tuple[str, ...] | None:
    """Read the strings that a module assigns to `INTERFACES`, without running it; none for `CONTRACT_VERSION`."""
    path = module.partition(":")[0].strip().replace(".", "/")
    member = next((each for each in (f"{path}.py", f"{path}/__init__.py") if each in archive.namelist()), None)
    try:
        tree = ast.parse(_text(archive, member) if member else "")
        stated = {
            name.id: ast.literal_eval(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign)
            for name in node.targets
            if isinstance(name, ast.Name) and name.id in ("INTERFACES", "CONTRACT_VERSION")
        }
    except (SyntaxError, ValueError, RecursionError):
        return None
    found = stated.get("INTERFACES", () if stated.get("CONTRACT_VERSION") == 1 else None)
    return tuple(map(str, found)) if isinstance(found, tuple | list) else None
