"""Models that no config names: folders of weights, cached Hub snapshots, packages that carry weights.

Each becomes a config that leaves everything to the weights. Only names and lists of files are read here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from sie_core.cache.disk import hub_layout
from sie_core.cache.formats import OTHER_FORMATS
from sie_core.cache.packages import installed_folder
from sie_core.catalog.cards import holds_model
from sie_core.catalog.configs.ids import ID_RULE, is_model_id
from sie_core.catalog.configs.snapshot import DEFAULT_PROFILE, FOUND_WEIGHTS
from sie_core.contracts import ModelConfig, Profile, WeightPackage
from sie_core.contracts.model.weights import SAFETENSORS


def folder_models(models_dir: Path) -> Iterator[ModelConfig]:
    """Find the folders `name` and `org/name` below `models_dir` that are the root of a model.

    Folders come before links, so that a link never replaces the folder it leads to.
    """
    own = models_dir.resolve()
    for folder in sorted(
        _roots(models_dir), key=lambda folder: folder.resolve() != own / folder.relative_to(models_dir)
    ):
        name = folder.relative_to(models_dir).as_posix()
        if is_model_id(name):
            yield weights_config(name, weights_path=str(folder.absolute()))


def passed_over(models_dir: Path) -> Iterator[tuple[Path, str]]:
    """Find the folders below `models_dir` that hold weights and are no models, each with the reason.

    Folders of LoRA adapters do not count.
    """
    for folder in _roots(models_dir):
        name = folder.relative_to(models_dir).as_posix()
        if not is_model_id(name):
            reason = (
                f"its name {name!r} can be no model's id: allowed are {ID_RULE}. Rename it, or name it as "
                "`weights_path` in a config with an id of its own"
            )
            yield folder, reason
    for first in _folders(models_dir):
        for folder in () if holds_model(first) else (first, *_folders(first)):
            if missing := undescribed(folder):
                yield folder, missing


def undescribed(folder: Path) -> str | None:
    """Report that a folder holds weights without any description; None otherwise."""
    if holds_model(folder) or not (file := _weights_in(folder)):
        return None
    return (
        f"it holds weights ({file}) and no config.json, which says what model they are of: put the files of "
        "their repository beside them; weights are read from safetensors"
    )


def _weights_in(folder: Path) -> str | None:
    """Name a file with weights in a folder that is none of a LoRA adapter."""
    endings = (".safetensors", *OTHER_FORMATS)
    try:
        names = sorted(file.name for file in folder.iterdir())
    except OSError:
        return None
    if "adapter_config.json" in names:
        return None
    return next((name for name in names if name.lower().endswith(endings)), None)


def _roots(models_dir: Path) -> list[Path]:
    """List the folders one or two levels below `models_dir` that are the root of a model."""
    return [
        folder
        for first in _folders(models_dir)
        for folder in ([first] if holds_model(first) else _folders(first))
        if holds_model(folder)
    ]


def cached_models(cache: Path, others: tuple[str, ...] = ()) -> Iterator[ModelConfig]:
    """Find the repositories of a Hub cache whose `main` is complete, with safetensors or weights of `others`."""
    for repo_id in hub_layout.repositories(cache):
        config = cached_model(cache, repo_id, others)
        if config is not None:
            yield config


def cached_model(cache: Path, repo_id: str, others: tuple[str, ...] = ()) -> ModelConfig | None:
    """Return the model of one repository of a Hub cache, as `cached_models` finds them; None if it has none."""
    formats = (SAFETENSORS, others) if others else (SAFETENSORS,)
    folder = hub_layout.snapshot(cache, repo_id, None) if is_model_id(repo_id) else None
    if folder is None or not holds_model(folder):
        return None
    whole = any(hub_layout.missing(folder, weights) is None for weights in formats)
    return weights_config(repo_id, hf_id=repo_id) if whole else None


def packaged_models(packages: Iterable[WeightPackage]) -> Iterator[ModelConfig]:
    """Find the registered weight packages that are installed."""
    for package in packages:
        if installed_folder(package) is not None:
            yield weights_config(package.repo_id, hf_id=package.repo_id)


def weights_config(model_id: str, *, hf_id: str | None = None, weights_path: str | None = None) -> ModelConfig:
    """Make the config of a model that leaves everything to its weights."""
    profiles = {DEFAULT_PROFILE: Profile(DEFAULT_PROFILE)}
    content = {"sie_id": model_id, **({"hf_id": hf_id} if hf_id else {"weights_path": weights_path})}
    return ModelConfig(
        id=model_id,
        hf_id=hf_id,
        weights_path=weights_path,
        profiles=profiles,
        source=FOUND_WEIGHTS,
        text="".join(f"{field}: {json.dumps(value)}\n" for field, value in content.items()),
        content=content,
    )


def _folders(parent: Path) -> list[Path]:
    try:
        return sorted(entry for entry in parent.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    except OSError:
        return []
