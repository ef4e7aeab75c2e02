"""A bundle with a lock and wheels made by hand, for contexts; pip's wheel too, as no registry is asked here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sie_bundle.cli import command
from sie_bundle.images import context
from sie_bundle.locks.lock import Lock, LockedPackage, LockedWheel, write_lock
from sie_bundle.locks.wheels import read_wheel, sha256_of

from tests.bundle.wheels import make_wheel
from tests.images.registry import registry

__all__ = ["registry"]

BASE = f"registry.example/python@sha256:{'a' * 64}"
BUNDLE = f"""
name: acme
plugins: [acme]
settings: {{SIE_LOG_JSON: true, SIE_AUTH_TOKENS_NOTE: "costs $5"}}
environments:
  own: {{requires: [helper==1.0]}}
platforms:
  cpu: {{base: {BASE}}}
"""


def locked(file: Path, *, registry: bool, size: int | None = None) -> LockedPackage:
    wheel = read_wheel(file)
    url = f"https://registry.example/{file.name}" if registry else None
    return LockedPackage(wheel.name, wheel.version, LockedWheel(file.name, size or wheel.size, sha256_of(file), url))


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a bundle, its two locks and their wheels."""
    folder, wheels = tmp_path / "acme", tmp_path / "acme" / "wheels"
    pip = make_wheel(tmp_path / "acme" / "wheels", "pip", "26.3")
    monkeypatch.setattr(context, "PIP", locked(pip, registry=True))
    core, plugin = make_wheel(wheels, "sie-core", "1.0.0"), make_wheel(wheels, "acme", "2.1")
    library, helper = make_wheel(wheels, "library", "3.0"), make_wheel(wheels, "helper", "1.0")
    packages = (locked(core, registry=False), locked(plugin, registry=False), locked(library, registry=True))
    own = Lock("acme", "cpu", "3.11", (locked(helper, registry=True),), "own")
    (folder / "pylock.cpu.toml").write_text(write_lock(Lock("acme", "cpu", "3.11", packages)))
    (folder / "pylock.cpu-own.toml").write_text(write_lock(own))
    (folder / "bundle.yaml").write_text(BUNDLE)
    return folder


@pytest.fixture
def build() -> Callable[..., Result]:
    """Run `sie bundle build …` in this process; a traceback fails the test."""

    def run(*arguments: object) -> Result:
        done = CliRunner().invoke(command, ["build", *map(str, arguments)])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done

    return run
