"""The Hub's cache layout on a local disk: the place of a snapshot, and whether it is complete. Read only."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from sie_core.cache.disk.writing import write_whole
from sie_core.cache.formats import holds, holds_pinned, is_described
from sie_core.contracts.model.weights import SAFETENSORS, holds_weights

ALLOWED_FILES = (
    "*.json",
    "*.txt",
    "*.model",
    "*.tiktoken",
    "*.jinja",
    "*.py",
    "artifact.metadata",
)
"""Files taken from a repository in addition to its weights: configs, tokenizers, templates.

Code is taken too, and runs only if a model's config opts in.
"""

IGNORED_FILES = ("onnx/*", "openvino/*", "coreml/*", "original/*")
"""Copies of the weights in other formats, with their files."""

LORA_CONFIG = "adapter_config.json"
"""The file that marks a folder as a LoRA adapter's."""

PARTIAL = ".sie.incomplete"
"""Suffix of partial files; the next fetch resumes them."""

_MODEL_FOLDER = "models--"


def repo_folder(cache: Path, repo_id: str) -> Path:
    """Return the folder of a model repository in a cache."""
    return cache / (_MODEL_FOLDER + repo_id.replace("/", "--"))


def repositories(cache: Path) -> Iterator[str]:
    """List the ids of the model repositories in a cache, in order; empty for a missing cache."""
    try:
        names = sorted(entry.name for entry in cache.iterdir())
    except OSError:
        return
    for name in names:
        if name.startswith(_MODEL_FOLDER):
            yield name.removeprefix(_MODEL_FOLDER).replace("--", "/", 1)


def snapshot(cache: Path, repo_id: str, revision: str | None) -> Path | None:
    """Find the folder of a revision (a commit, branch or tag; None means `main`), whole or not."""
    repo = repo_folder(cache, repo_id)
    name = revision or "main"
    if not is_relative_name(name):
        return None
    try:
        commit = (repo / "refs" / name).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        commit = name
    folder = repo / "snapshots" / commit
    return folder if commit and os.path.isdir(folder) else None  # noqa: PTH112 - Path raises for names too long


def write_ref(cache: Path, repo_id: str, revision: str | None, commit: str) -> None:
    """Record which commit a branch or tag (None means `main`) names, unless the cache cannot be written to.

    Nothing is recorded for a revision that is no valid file name in the cache, or that is the commit itself.
    """
    name = revision or "main"
    refs = repo_folder(cache, repo_id) / "refs"
    if name == commit or not is_relative_name(name):
        return
    with contextlib.suppress(OSError):
        if not (refs / name).is_file() or (refs / name).read_text(encoding="utf-8") != commit:
            write_whole(refs / name, commit.encode())


def is_relative_name(name: str) -> bool:
    """Whether a name from outside stays within the folder that it is joined to."""
    parts = name.split("/")
    return "\\" not in name and ":" not in name and "\0" not in name and all(p not in ("", ".", "..") for p in parts)


def missing(folder: Path, weights: tuple[str, ...] = SAFETENSORS, pickles: tuple[str, ...] = ()) -> str | None:
    """Return the name of a file that a model's folder lacks; None if it is complete.

    A snapshot is compared with the file list that the Hub's client recorded (`trees/<commit>.json`). Without one, the
    files that name others (a shard index, `modules.json`) are followed.

    Args:
        folder: The model's folder.
        weights: Patterns of the files that hold its weights. Safetensors need a config next to them.
        pickles: Pinned pickles, which may hold its weights in place of those.
    """
    if weights == SAFETENSORS and not is_described(folder) and not (folder / LORA_CONFIG).is_file():
        return "config.json"
    listed = [name for name in recorded(folder) if wanted(name, weights)]
    shards: Iterable[str] = _shards(folder) if weights == SAFETENSORS else ()
    for name in (*listed, *shards, *_modules(folder), *_files(folder)):
        if not (folder / name).exists():
            return name
    return (
        None
        if holds(folder, weights) or holds_pinned(folder, pickles)
        else "model.safetensors"
        if weights == SAFETENSORS
        else " or ".join(weights)
    )


def wanted(name: str, weights: tuple[str, ...] = SAFETENSORS) -> bool:
    """Whether a file of a repository, named from its root, is fetched with `weights`; pickles never are."""
    if not any(fnmatchcase(name, pattern) for pattern in IGNORED_FILES):
        return any(fnmatchcase(name, pattern) for pattern in ALLOWED_FILES) or holds_weights(name, weights)
    return weights != SAFETENSORS and holds_weights(name, weights)


def recorded(folder: Path) -> dict[str, Any]:
    """Read the file list of a commit that the Hub's client recorded, by name; empty if there is none."""
    record = folder.parent.parent / "trees" / f"{folder.name}.json"
    try:
        return dict(json.loads(record.read_bytes())["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _files(folder: Path) -> list[str]:
    """List the files of a folder, including links whose blobs are missing."""
    return [file.relative_to(folder).as_posix() for file in folder.rglob("*")]


def _shards(folder: Path) -> set[str]:
    shards: set[str] = set()
    for index in folder.rglob("*.safetensors.index.json"):
        try:
            weights = json.loads(index.read_bytes())["weight_map"]
            shards |= {(index.parent / name).relative_to(folder).as_posix() for name in set(weights.values())}
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            shards.add(index.relative_to(folder).as_posix() + " (readable)")
    return shards


def _modules(folder: Path) -> list[str]:
    """List the configs of the modules that must have one: only `Normalize` and the root's transformer may have none."""
    try:
        modules = json.loads((folder / "modules.json").read_bytes())
        return [
            f"{module['path']}/config.json"
            for module in modules
            if module["path"] and str(module["type"]).rsplit(".", 1)[-1] in {"Pooling", "Dense"}
        ]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError):
        return ["modules.json (readable)"]
