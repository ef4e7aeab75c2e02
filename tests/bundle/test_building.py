"""Wheels from a checkout: the same sources, the same bytes, wherever they lie; and every member's name is ours."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from sie_bundle.building import build_wheels, checkout
from sie_bundle.errors import BundlingError
from sie_bundle.locks.requirements import OURS
from sie_bundle.locks.wheels import read_wheel, sha256_of

PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "{name}"
version = "1.0"
[tool.hatch.build.targets.wheel]
packages = ["{package}"]
"""


def member(folder: Path, name: str) -> None:
    package = name.replace("-", "_")
    (folder / package).mkdir(parents=True)
    (folder / package / "__init__.py").write_text("X = 1\n")
    (folder / "pyproject.toml").write_text(PROJECT.format(name=name, package=package))


def test_a_checkout_gives_the_same_wheels_in_another_folder_and_none_of_what_is_not_shipped(tmp_path: Path) -> None:
    member(tmp_path / "one", "sie-core")
    member(tmp_path / "one/sdk/python", "sie-sdk")
    for name in ("sie-fake", "sie-text"):
        member(tmp_path / "one/plugins" / name, name)
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    (tmp_path / "built").mkdir()
    (tmp_path / "built/stale-0.1-py3-none-any.whl").write_text("of an earlier build")
    build_wheels(tmp_path / "one", tmp_path / "built")
    build_wheels(tmp_path / "other", tmp_path / "again")
    built = {file.name: sha256_of(file) for file in (tmp_path / "built").iterdir()}
    assert sorted(read_wheel(tmp_path / "built" / name).name for name in built) == ["sie-core", "sie-sdk", "sie-text"]
    assert {file.name: sha256_of(file) for file in (tmp_path / "again").iterdir()} == built


def test_a_member_that_cannot_be_built_is_told_and_the_wheels_before_stay(tmp_path: Path) -> None:
    member(tmp_path / "one", "sie-core")
    member(tmp_path / "one/sdk/python", "sie-sdk")
    (tmp_path / "one/plugins").mkdir()
    project = tmp_path / "one/sdk/python/pyproject.toml"
    project.write_text(project.read_text().replace('version = "1.0"', 'version = "1.0"\nreadme = "gone.md"'))
    (tmp_path / "built").mkdir()
    (tmp_path / "built/kept").write_text("")
    with pytest.raises(BundlingError, match="cannot be built"):
        build_wheels(tmp_path / "one", tmp_path / "built")
    assert (tmp_path / "built/kept").exists()


def test_no_registry_is_asked_for_a_member_of_the_checkout() -> None:
    folder = checkout()
    assert folder is not None
    assert {path.name for path in (folder / "plugins").iterdir() if path.is_dir()} <= OURS
