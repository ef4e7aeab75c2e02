"""Writes the folder that a builder is given: everything an image is made of, so that its build needs no network.

Registries, proxies, certificates and passwords are those of pip on this machine; nothing of them is in the folder.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from sie_bundle.errors import BundlingError
from sie_bundle.images.baking import bake
from sie_bundle.images.containerfile import containerfile
from sie_bundle.images.plan import Image, layers_of, requirements_file
from sie_bundle.locks.installing import gather_wheels
from sie_bundle.locks.lock import Lock, LockedPackage, LockedWheel, write_lock
from sie_bundle.locks.requirements import lock_name

INSIDE = Path(__file__).parent / "inside"
PIP = LockedPackage(
    "pip",
    "26.3",
    LockedWheel(
        "pip-26.3-py3-none-any.whl",
        1950951,
        "f3b60b20ffaadd4415ed7957212a38ac63fa4c5fa375bd0f4a797777940fad13",
        "https://pypi.org/simple/pip/",
    ),
)
"""Installs in the build, and is not in the image."""
WRITTEN = ("Containerfile", "inside", "plan.json", "requirements", "tools", "weights", "wheels")


def write_context(image: Image, folder: Path, places: Sequence[Path]) -> None:
    """Write the context of an image.

    Args:
        image: What is to be built.
        folder: Where to; what an earlier context left there is replaced, wheels are kept.
        places: Folders of wheels that are looked through before a registry is asked.

    Raises:
        BundlingError: The folder holds something else, or a wheel is nowhere.
    """
    _claim(folder)
    places = [*places, folder / "wheels"]
    gathered = folder / "wheels.part"
    for lock in image.locks:
        gather_wheels(lock, gathered, places)
    shutil.rmtree(folder / "wheels", ignore_errors=True)
    gathered.rename(folder / "wheels")
    gather_wheels(Lock("tools", image.platform, image.bundle.python, (PIP,)), folder / "tools", places)
    shutil.copytree(INSIDE, folder / "inside", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    for lock in image.locks:
        (folder / lock_name(lock.platform, lock.environment)).write_text(write_lock(lock), encoding="utf-8")
        for name, part in layers_of(lock).items():
            _write(folder / requirements_file(lock, name), part.requirements())
    bake(image.bundle, folder / "weights")
    _write(folder / "plan.json", json.dumps(image.plan(), indent=1) + "\n")
    _write(folder / "Containerfile", containerfile(image))


def _claim(folder: Path) -> None:
    """Take a folder that is empty or held a context before."""
    folder.mkdir(parents=True, exist_ok=True)
    there = {each.name for each in folder.iterdir()}
    if there and "plan.json" not in there:
        raise BundlingError(f"{folder}: holds something else than a context of images: name a new folder")
    for name in {*WRITTEN, *(name for name in there if name.startswith("pylock."))} - {"wheels", "tools", "weights"}:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
