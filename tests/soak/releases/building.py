"""Builds an older release from this repository's history, and installs it into a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parents[3]
BACK = 10
"""Commits of the main line between this tree and the older release, while no release has a tag."""
MEMBERS = ("sdk/python", ".", "plugins/sie-fake", "plugins/sie-bundle", "plugins/sie-cluster", "plugins/sie-nats")


def older() -> str | None:
    """Name the commit of the last release, or one a few commits back; None where there is no history."""
    if (chosen := os.environ.get("TESTS_OLD_RELEASE")) is not None:
        return chosen
    for question in (
        ("describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^"),
        ("rev-list", "--first-parent", "--max-count=1", f"--skip={BACK}", "HEAD"),
    ):
        try:
            told = subprocess.run(["git", *question], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            continue
        if told.strip():
            return told.strip()
    return None


def install(commit: str, folder: Path) -> Path:
    """Build the wheels of a commit, and install them into a folder.

    Args:
        commit: Of this repository.
        folder: Empty; sources and wheels go there too.

    Returns:
        What is to be first on the path of its programs.
    """
    source, wheels, target = folder / "source", folder / "wheels", folder / "installed"
    packed = subprocess.run(["git", "archive", "--format=tar", commit], cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(source, filter="data")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    paths = [str(source / member) for member in MEMBERS if (source / member).is_dir()]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(wheels), *paths], check=True)
    built = map(str, wheels.glob("*.whl"))
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", str(target), *built], check=True)
    _check(target)
    return target


def _check(target: Path) -> None:
    """See that programs with that path run the older release, and not this tree."""
    packages = ", ".join(sorted(each.name for each in target.glob("sie_*") if (each / "__init__.py").exists()))
    code = f"import {packages}; print(*[each.__file__ for each in ({packages})], sep='\\n')"
    env = {**os.environ, "PYTHONPATH": str(target)}
    told = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, cwd="/")
    assert all(Path(file).is_relative_to(target) for file in told.stdout.split()), told.stdout
