"""Plugins as their users have them: real distributions, installed by pip beside the developer's own environment."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from tests.conftest import made_once
from tests.plugins.outside import DATA, SIE, environment, pip, run

LIBRARY = Path(__file__).parents[2] / ".envs/onnxruntime"
NEEDS = ("onnxruntime==1.32.0", "onnx==1.23.2", "ml-dtypes==0.6.0")


@pytest.fixture(scope="session")
def onnx_runtime() -> Path:
    """The folder of ONNX Runtime, installed once beside the environment, which does without it."""
    LIBRARY.parent.mkdir(exist_ok=True)
    with FileLock(f"{LIBRARY}.lock", timeout=300):
        if not (LIBRARY / "onnxruntime").is_dir():
            command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", LIBRARY, *NEEDS]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
            if done.returncode:
                pytest.skip(f"ONNX Runtime cannot be installed here: {done.stderr.strip().splitlines()[-1]}")
    return LIBRARY


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of every test package, built as an index would hold it."""

    def make(folder: Path) -> None:
        pip("wheel", "--no-build-isolation", "--wheel-dir", folder, *sorted(DATA.iterdir()))

    return made_once(tmp_path_factory, "wheels", make)


@pytest.fixture(scope="session")
def install(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Installs test packages by name into a folder of their own, for `PYTHONPATH`."""
    sites: dict[tuple[str, ...], Path] = {}

    def installed(*names: str) -> Path:
        if names not in sites:
            sites[names] = tmp_path_factory.mktemp("site")
            found = [next(wheels.glob(f"sie_test_{name}-*.whl")) for name in names]
            pip("install", "--no-compile", "--target", sites[names], *found)
        return sites[names]

    return installed


@pytest.fixture(scope="session")
def sie(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., object]:
    """Runs the command `sie` to its end in an empty folder, with the packages of `site` installed."""
    folder = tmp_path_factory.mktemp("shell")

    def command(*arguments: str, site: Path | None = None, **variables: str) -> object:
        return run([SIE, *arguments], folder, environment(site, **variables))

    return command
