"""Every kind of new plugin works before it is edited: formatted, typed, installed, checked by its own tests."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from sie_kit.cli.projects import KINDS, CannotMake, make

from sie_core.cli import main
from sie_core.plugins.registration import REGISTRATIONS
from tests.plugins.outside import environment, install_beside

ROOT = Path(__file__).parents[2]
WHOLE = ("family", "store")
"""Kinds whose types and own tests are checked here; `python -m tests.kit.whole` checks every one, and serves it."""


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a project of every kind."""
    folder = tmp_path_factory.mktemp("projects")
    for kind in KINDS:
        make(f"new-{kind}", kind, folder)
    return folder


def python(folder: Path, *arguments: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_they_are_formatted_and_linted(projects: Path) -> None:
    python(projects, "ruff", "format", "--check", "--no-cache", ".")
    python(projects, "ruff", "check", "--no-cache", ".")


def test_they_pass_mypy_strict(projects: Path) -> None:
    packages = [next((projects / f"sie-new-{kind}").glob("sie_*")) for kind in WHOLE]
    python(ROOT, "mypy", *map(str, packages))  # the project's own settings are strict, and its cache spares a minute


@pytest.mark.parametrize("kind", WHOLE)
def test_its_own_tests_pass(kind: str, projects: Path) -> None:
    folder = projects / f"sie-new-{kind}"
    install_beside(folder)
    assert " passed" in python(folder, "pytest", "-q", "-p", "no:cacheprovider", PYTHONPATH=str(folder))


def test_each_states_an_interface_that_the_core_serves(projects: Path) -> None:
    served = {version for each in REGISTRATIONS.values() for version in each.served}
    for kind in KINDS:
        (file,) = (projects / f"sie-new-{kind}").glob("sie_*/plugin.py")
        (stated,) = re.findall(r"^INTERFACES = (.*)$", file.read_text(), re.MULTILINE)
        assert set(ast.literal_eval(stated)) <= served, kind


def test_a_name_that_is_none_and_a_folder_that_is_there_are_refused(tmp_path: Path) -> None:
    for name in ("sie-letters", "Letters", "1st", "a--b", "../a", ""):
        with pytest.raises(CannotMake, match="is no name of a plugin"):
            make(name, "family", tmp_path)
    make("letters", "family", tmp_path)
    done = CliRunner().invoke(main, ["plugins", "new", "letters", "--into", str(tmp_path)])
    assert done.exit_code == 1
    assert "exists; remove it, or choose another name" in done.output
