"""A third party's plugins, installed beside those of this environment."""

from __future__ import annotations

import importlib
import zipfile
from pathlib import Path

import pytest

from tests.bundle.checks.plugins import make_plugins


@pytest.fixture(scope="session")
def plugin_wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plugins")
    make_plugins(folder)
    return folder


@pytest.fixture(scope="session")
def site(plugin_wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugins as an installer leaves them."""
    folder = tmp_path_factory.mktemp("site")
    for wheel in plugin_wheels.iterdir():
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    return folder


@pytest.fixture(autouse=True)
def installed(site: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(site)
    importlib.invalidate_caches()
    monkeypatch.setenv("SIE_LOCAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SIE_MODELS_DIR", raising=False)
