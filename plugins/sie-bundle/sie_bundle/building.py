"""Builds the wheels of this project from its checkout, each once, so that locks pin them by hash."""

from __future__ import annotations

import importlib.util
import shutil
import tomllib
from pathlib import Path

import sie_core
from sie_bundle.errors import BundlingError
from sie_bundle.tools import pip, run

NOT_SHIPPED = frozenset({"sie-fake"})
"""Members of the checkout that no image holds."""
BACKEND = "hatchling"
BUILT_AT = "1577836800"
"""The date of the files in wheels, as `SOURCE_DATE_EPOCH`: the same sources, the same bytes."""


def checkout() -> Path | None:
    """Return the folder of this project's checkout; None where the core is installed from a wheel."""
    folder = Path(sie_core.__file__).parent.parent
    return folder if (folder / "pyproject.toml").is_file() and (folder / "plugins").is_dir() else None


def build_wheels(folder: Path, out: Path) -> None:
    """Build the wheels of a checkout into a folder, in place of those there.

    Raises:
        BundlingError: One cannot be built; what the build wrote last is told.
    """
    members = [folder, folder / "sdk" / "python", *sorted((folder / "plugins").iterdir())]
    wanted = [member for member in members if _name(member) not in {None, *NOT_SHIPPED}]
    built = out.with_name(f".{out.name}.part")
    shutil.rmtree(built, ignore_errors=True)
    built.mkdir(parents=True)
    # The environment's own build backend, where it has it: another version may write other bytes.
    isolation = ["--no-build-isolation"] if importlib.util.find_spec(BACKEND) else []
    command = [*pip(), "wheel", "--quiet", "--no-deps", *isolation, "--wheel-dir", str(built), *map(str, wanted)]
    done = run(command, variables={"SOURCE_DATE_EPOCH": BUILT_AT})
    if done.returncode:
        last = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise BundlingError(f"the wheels of {folder} cannot be built:\n{last}")
    shutil.rmtree(out, ignore_errors=True)
    built.rename(out)


def _name(member: Path) -> str | None:
    file = member / "pyproject.toml"
    if not file.is_file():
        return None
    return str(tomllib.loads(file.read_text(encoding="utf-8"))["project"]["name"])
