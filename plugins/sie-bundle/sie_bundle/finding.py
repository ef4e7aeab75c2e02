"""Finds the file of a bundle by name or path, and the folder of its locks."""

from __future__ import annotations

import re
from pathlib import Path

from sie_bundle.bundles.names import FILE, NAME
from sie_bundle.bundles.reading import BundleFile, shipped_bundles
from sie_bundle.errors import BundlingError
from sie_core.catalog import did_you_mean, short


def find_bundle(name: str, folder: Path) -> Path:
    """Return the file of a bundle.

    Args:
        name: The name of a bundle's folder in `folder`; or, with a separator or a leading dot, the path of a bundle's
            folder or file anywhere.
        folder: Where bundles lie.

    Raises:
        BundlingError: There is none.
    """
    if "/" in name or name.startswith("."):
        path = Path(name)
        file = path if path.name == FILE else path / FILE
        if not file.is_file():
            raise BundlingError(f"{file}: there is no bundle; begin one with `sie bundle init {path}`")
        return file
    there = names_in(folder)
    if not re.fullmatch(NAME, name) or name not in there:
        raise BundlingError(
            f"{short(name)}: {folder} holds no such bundle.{did_you_mean(name, there)} There are {', '.join(there)}; "
            "name the folder of one that lies elsewhere with its path, as ./acme"
        )
    return folder / name / FILE


def names_in(folder: Path) -> list[str]:
    """List the folders with a bundle.

    Raises:
        BundlingError: The folder cannot be listed.
    """
    try:
        return sorted(each.name for each in folder.iterdir() if (each / FILE).is_file())
    except OSError as error:
        raise BundlingError(f"{folder}: cannot be read: {error.strerror}; name a folder in SIE_BUNDLES_DIR") from error


def default_in(folder: Path) -> str:
    """Name the folder of the bundle that is the default among those of a folder.

    Raises:
        BundlingError: There is none, or the folder cannot be listed.
        BundleError: A bundle of the folder is wrong.
    """
    for name in names_in(folder):
        if BundleFile.read(folder / name / FILE).whole.default:
            return name
    raise BundlingError(f"no bundle of {folder} is the default: name one, or write `default: true` into its file")


def lock_folder(file: Path) -> Path:
    """Say where the locks of a bundle lie: beside it; of one that ships, below the working folder.

    A lock holds the hash of the wheel of sie-bundle, which ships these bundles: it cannot lie among them.
    """
    if file.absolute().is_relative_to(shipped_bundles().absolute()):
        return Path("dist", "bundles", file.absolute().parent.name)
    return file.parent
