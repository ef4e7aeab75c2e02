"""Installing a lock offline: what is locked is installed, and anything else is refused before a file is written."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sie_bundle.errors import BundlingError
from sie_bundle.locks.installing import gather_wheels, install_lock
from sie_bundle.locks.lock import Lock, LockedPackage, LockedWheel, read_lock, write_lock
from sie_bundle.locks.wheels import read_wheel

from tests.bundle.conftest import needs_uv
from tests.bundle.wheels import make_wheel


@pytest.fixture
def wheels(ours: Path, others: Path) -> Path:
    (others / "numbers-5.24.0-py3-none-any.whl").rename(ours / "numbers-5.24.0-py3-none-any.whl")
    return ours


@pytest.fixture
def lock(wheels: Path) -> Lock:
    packages = []
    for file in sorted(wheels.glob("*.whl")):
        wheel = read_wheel(file)
        packages.append(LockedPackage(wheel.name, wheel.version, LockedWheel(file.name, wheel.size, wheel.sha256)))
    return Lock("acme", "cpu", "3.11", tuple(packages))


@needs_uv
def test_a_lock_is_installed_offline_into_an_empty_folder(lock: Lock, wheels: Path, tmp_path: Path) -> None:
    make_wheel(wheels, "sie-sdk", "9.0.0")
    site = tmp_path / "site"
    install_lock(lock, wheels, site)
    code = f"import sys; sys.path.insert(0, {str(site)!r}); import sie_sdk; print(sie_sdk.VERSION)"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1.0.0"
    assert len(list(site.glob("*.dist-info"))) == len(lock.packages) == 5
    with pytest.raises(BundlingError, match="is not empty"):
        install_lock(lock, wheels, site)


def change_a_byte(wheels: Path) -> None:
    file = wheels / "sie_text-1.0.0-py3-none-any.whl"
    content = bytearray(file.read_bytes())
    content[60] ^= 1
    file.write_bytes(content)


def put_another_in_its_place(wheels: Path) -> None:
    make_wheel(wheels, "sie-text", "1.0.0", modules={"sie_text/stranger.py": "print('hello')\n"})


def take_it_away(wheels: Path) -> None:
    (wheels / "sie_text-1.0.0-py3-none-any.whl").unlink()


def offer_a_higher_version(wheels: Path) -> None:
    take_it_away(wheels)
    make_wheel(wheels, "sie-text", "9.0.0")


@pytest.mark.parametrize(
    ("attack", "said"),
    [
        (change_a_byte, "its SHA-256 is"),
        (put_another_in_its_place, "its SHA-256 is"),
        (take_it_away, "is not there"),
        (offer_a_higher_version, "is not there"),
    ],
)
def test_a_wheel_that_is_not_the_locked_one_is_refused(
    lock: Lock, wheels: Path, tmp_path: Path, attack: Callable[[Path], None], said: str
) -> None:
    attack(wheels)
    with pytest.raises(BundlingError, match=rf"sie_text-1\.0\.0-py3-none-any\.whl: {said}"):
        install_lock(lock, wheels, tmp_path / "site")
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('hashes = {{ sha256 = "{sha256}" }}', "", "sie-text: its wheel has no SHA-256"),
        ("{sha256}", "0" * 63, "sie-text: its wheel has no SHA-256"),
        ("size = {size}\n", "", "sie-text: its wheel has no size"),
        ('path = "wheels/', 'path = "../', "a wheel lies at a URL, or at wheels/"),
        ('path = "wheels/{file}"', 'url = "file:///tmp/x.whl"', "no URL of a registry"),
        ("{file}", "sie_sdk-1.0.0-py3-none-any.whl", "no wheel of sie-text 1.0.0"),
        ("{file}", "..", "sie-text: Invalid wheel filename"),
        ('name = "sie-text"', 'name = "sie-sdk"', "no wheel of sie-sdk 1.0.0"),
        ("[[packages.wheels]]", "[packages.sdist]", "sie-text: one wheel is wanted"),
        ("[tool.sie]", "[tool.other]", "no lock of a bundle"),
        ("lock-version =", "lock-version", "no TOML"),
    ],
)
def test_a_lock_that_was_tampered_with_is_refused(lock: Lock, tmp_path: Path, old: str, new: str, said: str) -> None:
    package = next(each for each in lock.packages if each.name == "sie-text")
    old = old.format(sha256=package.wheel.sha256, size=package.wheel.size, file=package.wheel.file)
    text = write_lock(lock)
    before, head, section = text.partition('[[packages]]\nname = "sie-text"')
    part = head + section
    text = before + part.replace(old, new, 1) if old in part else text.replace(old, new, 1)
    file = tmp_path / "pylock.cpu.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BundlingError) as raised:
        read_lock(file)
    assert said in str(raised.value)
    assert "sie bundle lock" in str(raised.value)


def test_a_lock_is_read_as_it_was_written(lock: Lock, tmp_path: Path) -> None:
    file = tmp_path / "pylock.cpu.toml"
    file.write_text(write_lock(lock), encoding="utf-8")
    assert read_lock(file) == lock


def test_wheels_are_gathered_from_folders_and_one_that_is_nowhere_is_named(
    lock: Lock, wheels: Path, tmp_path: Path
) -> None:
    gather_wheels(lock, tmp_path / "all", [wheels])
    assert sorted(file.name for file in (tmp_path / "all").iterdir()) == sorted(file.name for file in wheels.iterdir())
    change_a_byte(wheels)
    with pytest.raises(BundlingError, match=r"sie_text-1\.0\.0-py3-none-any\.whl: not in the folders"):
        gather_wheels(lock, tmp_path / "again", [wheels])
