"""Plugins as their users have them: real distributions, installed by pip beside the developer's own environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"
Install = Callable[..., Path]
Run = Callable[..., subprocess.CompletedProcess[str]]


def pip(*arguments: object) -> None:
    command = [sys.executable, "-m", "pip", *map(str, arguments), "--no-deps", "--no-index", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of every test package, built as an index would hold it."""
    folder = tmp_path_factory.mktemp("wheels")
    pip("wheel", "--no-build-isolation", "--wheel-dir", folder, *sorted(DATA.iterdir()))
    return folder


@pytest.fixture(scope="session")
def install(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Install:
    """Installs test packages by name into a folder of their own, for `PYTHONPATH`."""
    folders: dict[tuple[str, ...], Path] = {}

    def installed(*names: str) -> Path:
        if names not in folders:
            folders[names] = tmp_path_factory.mktemp("_".join(names))
            found = [next(wheels.glob(f"sie_test_{name}-*.whl")) for name in names]
            pip("install", "--no-compile", "--target", folders[names], *found)
        return folders[names]

    return installed


def environment(site: Path | None = None, **variables: str) -> dict[str, str]:
    """The environment of a user's shell: no SIE setting of the developer's, `site` on the path."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SIE_")}
    path = {"PYTHONPATH": str(site)} if site is not None else {}
    return {**inherited, **path, "OMP_NUM_THREADS": "1", **variables}


@pytest.fixture
def sie(tmp_path: Path) -> Run:
    """Runs the command `sie` to its end in an empty folder, with packages of `site` installed."""

    def run(*arguments: str, site: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [Path(sys.executable).with_name("sie"), *arguments],
            cwd=tmp_path,
            env=environment(site, **variables),
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run
