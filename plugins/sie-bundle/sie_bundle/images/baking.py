"""Weights that an image brings: fetched and checked by `sie cache pull` on this machine, as nothing is in a build."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from sie_bundle.bundles.schema import ModelEntry, WholeBundle
from sie_bundle.errors import BundlingError
from sie_bundle.tools import run
from sie_core.cache import RECORDS

PULL = (sys.executable, "-P", "-c", "from sie_core.cli import main; main()", "cache", "pull")


def bake(bundle: WholeBundle, folder: Path) -> None:
    """Have the weights of every model that the bundle bakes in a folder, in the Hub's layout, and nothing else.

    Raises:
        BundlingError: One cannot be fetched, or a model's config names another revision than the bundle.
    """
    shutil.rmtree(folder, ignore_errors=True)
    wanted = [model for model in bundle.models if model.bake]
    for model in wanted:
        _pull(model, folder)
    for each in folder.iterdir() if folder.is_dir() else ():
        # Locks, choices and times of this machine; the names of the files' blobs are the hashes they are held against.
        if not each.name.startswith("models--"):
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        shutil.rmtree(each / RECORDS, ignore_errors=True)
    for model in wanted:
        _check(model, folder)


def _pull(model: ModelEntry, folder: Path) -> None:
    revision = ["--revision", model.revision] if model.revision else []
    done = run([*PULL, *revision, _repository(model)], variables={"SIE_LOCAL_CACHE": str(folder)})
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no reason was given"]
        raise BundlingError(f"weights of {model.id} cannot be baked: {said[-1]}")


def _check(model: ModelEntry, folder: Path) -> None:
    there = sorted(each.name for each in folder.glob(f"models--{_repository(model).replace('/', '--')}/snapshots/*"))
    if model.revision and there and there != [model.revision]:
        raise BundlingError(
            f"{model.id}: the bundle pins {model.revision}, and what was fetched is {', '.join(there)}: a config names "
            "another revision; pin the same in both"
        )


def _repository(model: ModelEntry) -> str:
    """Return the id without a profile."""
    return model.id.partition(":")[0]
