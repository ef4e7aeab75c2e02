"""Finds the distribution that `sie plugins check` names: an installed one, a wheel, or a folder that is built first."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import BadZipFile, ZipFile

from sie_kit.cli.children import CannotCheck

BUILD_S = 600.0
"""Seconds that the build of a wheel may take; compilers take minutes."""


@contextmanager
def found(what: str) -> Iterator[tuple[str, Path | None]]:
    """Give the name of a distribution, and the folder it is unpacked in unless it is installed.

    Raises:
        CannotCheck: There is no such wheel, or the folder cannot be built.
    """
    path = Path(what)
    if path.suffix != ".whl" and not path.is_dir():
        yield what, None
        return
    with TemporaryDirectory(prefix="sie-check-") as made:
        wheel = path if path.suffix == ".whl" else _built(path, Path(made))
        site = Path(made) / "site"
        try:
            with ZipFile(wheel) as archive:
                archive.extractall(site)
        except (OSError, BadZipFile) as error:
            raise CannotCheck(f"{wheel} is no wheel that can be read: {error}") from error
        yield _name(wheel), site


def _name(wheel: Path) -> str:
    return wheel.name.partition("-")[0]


def _built(folder: Path, into: Path) -> Path:
    """Build the wheel of a folder; without isolation if what builds it is installed here, so without a network."""
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise CannotCheck(f"{folder} has no pyproject.toml that can be read: {error}") from error
    backend = project.get("build-system", {}).get("build-backend", "setuptools.build_meta")
    here = find_spec(backend.partition(".")[0]) is not None
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", into, folder.resolve()]
    command += ["--no-build-isolation"] * here
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=BUILD_S)
    except subprocess.TimeoutExpired as error:
        raise CannotCheck(f"the wheel of {folder} was not built within {BUILD_S:.0f} s") from error
    wheels = list(into.glob("*.whl"))
    if done.returncode or not wheels:
        raise CannotCheck(f"the wheel of {folder} cannot be built: {done.stderr.strip() or 'pip made none'}")
    return wheels[0]
