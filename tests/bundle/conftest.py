"""A workplace for bundles: wheels made by hand in folders, no registry, and uv with a cache of its own."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sie_bundle.cli import command

from tests.bundle.wheels import make_ours, make_wheel

HAS_UV = shutil.which("uv") is not None or importlib.util.find_spec("uv") is not None
needs_uv = pytest.mark.skipif(not HAS_UV, reason="uv is not installed: pip install uv")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UV_EXCLUDE_NEWER", "UV_INDEX", "UV_DEFAULT_INDEX", "UV_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("UV_NO_CONFIG", "1")


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A folder with wheels of this project."""
    return make_ours(tmp_path / "ours")


@pytest.fixture
def others(tmp_path: Path) -> Path:
    """A folder with wheels of others, as a registry would hold them."""
    folder = tmp_path / "others"
    for version in ("5.16.0", "5.23.0", "5.24.0"):
        make_wheel(folder, "numbers", version)
    make_wheel(folder, "weights", "0.1")
    make_wheel(folder, "old-reader", "0.2.29", ["numbers>=4.51.3,<5.17"])
    return folder


@pytest.fixture
def bundle(tmp_path: Path) -> Callable[[str], Path]:
    """Write the bundle `acme`; return its folder."""

    def write(text: str) -> Path:
        folder = tmp_path / "acme"
        folder.mkdir(exist_ok=True)
        (folder / "bundle.yaml").write_text(text, encoding="utf-8")
        return folder

    return write


@pytest.fixture
def sie_bundle() -> Callable[..., Result]:
    """Run `sie bundle …` in this process; a traceback fails the test."""

    def run(*arguments: object) -> Result:
        done = CliRunner().invoke(command, [str(each) for each in arguments])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done

    return run
