"""Connections extend a class of uvicorn, so the lowest release that pyproject.toml allows is tested too."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
NEEDED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
(UVICORN,) = [each for each in map(Requirement, NEEDED) if each.name == "uvicorn"]
LONGEST_S = 250


def run(*command: str | Path, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, timeout=LONGEST_S, cwd=ROOT, env=environment
    )


def test_the_installed_uvicorn_is_in_the_range_that_is_tested() -> None:
    assert {each.operator for each in UVICORN.specifier} == {">=", "<"}
    assert version("uvicorn") in UVICORN.specifier


def test_connections_keep_their_promises_with_the_lowest_uvicorn(tmp_path: Path) -> None:
    (lowest,) = [each.version for each in UVICORN.specifier if each.operator == ">="]
    installed = run("pip", "install", "--quiet", "--no-deps", "--target", tmp_path, f"uvicorn=={lowest}.0")
    if installed.returncode:
        pytest.skip(f"uvicorn {lowest} cannot be installed here: {installed.stderr.strip().splitlines()[-1:]}")
    exchanges = Path(__file__).with_name("test_exchanges.py")
    tested = run("pytest", "-q", "-p", "no:cacheprovider", exchanges, path=str(tmp_path))
    assert tested.returncode == 0, tested.stdout
    assert run("uvicorn", "--version", path=str(tmp_path)).stdout.split()[2] == f"{lowest}.0"
