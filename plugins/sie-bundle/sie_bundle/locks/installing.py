"""Installs a lock into an empty folder from a folder of its wheels, offline; gathers these wheels before."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from sie_bundle.errors import BundlingError
from sie_bundle.locks.lock import Lock, LockedPackage
from sie_bundle.locks.targets import Target
from sie_bundle.locks.wheels import sha256_of
from sie_bundle.tools import pip, run, uv

MOST_TOLD = 5


def gather_wheels(lock: Lock, folder: Path, places: Iterable[Path]) -> None:
    """Have every wheel of a lock in a folder: copied from `places` where they hold it, else downloaded by pip.

    pip takes the registry it is configured with, and checks every hash.

    Raises:
        BundlingError: A wheel is nowhere, or not the one that was locked.
    """
    folder.mkdir(parents=True, exist_ok=True)
    places = [folder, *places]
    missing = [package for package in lock.packages if not _copied(package, folder, places)]
    local = [package.wheel.file for package in missing if package.wheel.url is None]
    if local:
        raise BundlingError(
            f"{', '.join(local)}: not in the folders that were named, and no registry is asked for it: copy it into one"
        )
    if missing:
        _download(lock, missing, folder)
    verify_wheels(lock, folder)


def _copied(package: LockedPackage, folder: Path, places: Iterable[Path]) -> bool:
    wheel = package.wheel
    for place in places:
        file = place / wheel.file
        if file.is_file() and file.stat().st_size == wheel.size and sha256_of(file) == wheel.sha256:
            if place != folder:
                shutil.copyfile(file, folder / wheel.file)
            return True
    return False


def _download(lock: Lock, packages: Iterable[LockedPackage], folder: Path) -> None:
    wanted = folder / ".requirements.txt"
    wanted.write_text(Lock(lock.bundle, lock.platform, lock.python, tuple(packages)).requirements(), encoding="utf-8")
    tags = [part for tag in Target(lock.python).platforms for part in ("--platform", tag)]
    command = [*pip(), "download", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    command += ["--python-version", lock.python, *tags, "--dest", str(folder), "--requirement", str(wanted)]
    try:
        done = run(command)
    finally:
        wanted.unlink()
    if done.returncode:
        raise BundlingError(f"pip cannot download the wheels of the lock: {_last_lines(done.stderr)}")


def verify_wheels(lock: Lock, folder: Path) -> None:
    """Check that a folder holds every wheel of a lock, byte by byte.

    Raises:
        BundlingError: One is not there or another; each is named.
    """
    wrong = list(_wrong(lock, folder))
    if wrong:
        more = [f"and {len(wrong) - MOST_TOLD} more"] if len(wrong) > MOST_TOLD else []
        raise BundlingError(
            "\n".join(
                [
                    *wrong[:MOST_TOLD],
                    *more,
                    "Nothing is installed: fetch the wheels again, or lock anew what was meant.",
                ]
            )
        )


def _wrong(lock: Lock, folder: Path) -> Iterator[str]:
    for package in lock.packages:
        wheel, file = package.wheel, folder / package.wheel.file
        if not file.is_file():
            yield f"{file}: is not there; the lock names it for {package.name} {package.version}"
        elif (found := sha256_of(file)) != wheel.sha256:
            yield f"{file}: its SHA-256 is {found}, and {wheel.sha256} was locked"
        elif file.stat().st_size != wheel.size:
            yield f"{file}: has {file.stat().st_size} bytes, and {wheel.size} were locked"


def install_lock(lock: Lock, wheels: Path, target: Path) -> None:
    """Install a lock into an empty folder, from its wheels alone: nothing is looked up, resolved or built.

    Args:
        lock: What to install.
        wheels: A folder with its wheels; others in it are not looked at.
        target: The folder, for `PYTHONPATH` or as `site-packages`.

    Raises:
        BundlingError: The folder holds something, or a wheel is not the one that was locked.
    """
    if target.exists() and any(target.iterdir()):
        raise BundlingError(f"{target}: is not empty: name a new folder, or empty it")
    verify_wheels(lock, wheels)
    target.mkdir(parents=True, exist_ok=True)
    lines = [
        f"{each.name} @ {(wheels / each.wheel.file).absolute().as_uri()} --hash=sha256:{each.wheel.sha256}"
        for each in lock.packages
    ]
    wanted = target.with_name(f"{target.name}.requirements.txt")
    wanted.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [*uv(), "pip", "install", "--quiet", "--offline", "--no-index", "--no-deps", "--require-hashes"]
    command += ["--only-binary", ":all:", "--link-mode", "copy", "--python", sys.executable, "--target", str(target)]
    command += ["--python-version", lock.python, "--python-platform", Target(lock.python).uv_platform]
    try:
        done = run([*command, "--requirement", str(wanted)])
    finally:
        wanted.unlink()
    if done.returncode:
        raise BundlingError(f"{target}: the lock cannot be installed: {_last_lines(done.stderr)}")


def _last_lines(text: str) -> str:
    return " / ".join(line.strip() for line in text.strip().splitlines()[-3:]) or "no reason was given"
