"""Plugins as their users have them: real distributions, installed by pip beside the developer's own environment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import made_once
from tests.plugins.outside import DATA, SIE, environment, pip, run


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
