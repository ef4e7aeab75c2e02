"""Reads a `ModelCard` from a folder of weights: JSON files only, no weights, no model library."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sie_core.cache.formats import is_described
from sie_core.catalog.regular_file import UnfitFile, read_regular
from sie_core.contracts import ModelCard, ModelLoadError, ModuleCard

LARGEST_FILE = 2**25
"""The most bytes of a JSON file; a config that names thousands of classes has a few million."""

ROUTER_CONFIG = "router_config.json"

MODULE_CONFIGS = (
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
    ROUTER_CONFIG,
)
"""Names of a module's config other than `config.json`: first those of a `Transformer`, then that of a `Router`."""

ROUTERS = ("Router", "Asym")


def holds_model(folder: Path) -> bool:
    """Whether `folder` looks like the root of a model: whether it holds one of the files that describe models."""
    return is_described(folder)


def read_card(folder: Path) -> ModelCard:
    """Read the facts of the weights in `folder`.

    Raises:
        ModelLoadError: `CORRUPT`, naming the file, if one is not valid JSON of the expected form; `NOT_FOUND` if the
            folder is missing.
    """
    if not folder.is_dir():
        raise ModelLoadError("NOT_FOUND", f"The folder of weights {folder.name!r} does not exist.")
    modules = tuple(_module(folder, entry) for entry in _read(folder / "modules.json", list))
    config = _read(folder / "config.json", dict)
    if not config and modules:
        config = _read(modules[0].path / "config.json", dict)
    return ModelCard(
        path=folder,
        config=config,
        modules=modules,
        sentence_transformers=_read(folder / "config_sentence_transformers.json", dict),
        files=_files(folder),
    )


def _module(folder: Path, entry: object) -> ModuleCard:
    if not isinstance(entry, dict) or not isinstance(entry.get("type"), str):
        raise ModelLoadError("CORRUPT", "modules.json: every entry must be a map that names its `type`.")
    relative = entry.get("path", "")
    if not isinstance(relative, str) or Path(relative).is_absolute() or ".." in Path(relative).parts:
        raise ModelLoadError("CORRUPT", f"modules.json: the path {relative!r} is not inside the model's folder.")
    module = ModuleCard(name=str(entry.get("name", "")), type=entry["type"], path=folder / relative)
    return ModuleCard(module.name, module.type, module.path, config=_module_config(module, own=bool(relative)))


def _module_config(module: ModuleCard, *, own: bool) -> Mapping[str, Any]:
    # A config.json next to a transformer, or in the root that modules share, is the transformers library's.
    names = MODULE_CONFIGS if module.kind == "Transformer" or not own else (*MODULE_CONFIGS, "config.json")
    if module.kind in ROUTERS:
        names = (ROUTER_CONFIG, *names)  # the root may also hold the config of one of its modules
    for name in names:
        if (module.path / name).is_file():
            config: Mapping[str, Any] = _read(module.path / name, dict)
            return config
    return {}


def _read(file: Path, shape: type[Any]) -> Any:
    """Read a JSON file of the given top-level shape; a missing file gives an empty one."""
    try:
        value = json.loads(read_regular(file, LARGEST_FILE))
    except FileNotFoundError:
        return shape()
    except OSError as error:
        raise ModelLoadError("STORAGE", f"{file.name} cannot be read: {error.strerror}.") from error
    except UnfitFile as error:
        raise ModelLoadError("CORRUPT", f"{file.name} cannot be read: {error}.") from error
    except (ValueError, RecursionError) as error:
        raise ModelLoadError("CORRUPT", f"{file.name} is not valid JSON: {_fault(error)}.") from error
    if not isinstance(value, shape):
        raise ModelLoadError(
            "CORRUPT", f"{file.name} must hold a JSON {'object' if shape is dict else 'array'} at its top."
        )
    return value


def _fault(error: ValueError | RecursionError) -> str:
    """Locate the fault in the JSON, without the parser's message, which may quote the file: clients must not see it."""
    match error:
        case json.JSONDecodeError():
            return f"see line {error.lineno}, column {error.colno}"
        case UnicodeDecodeError():
            return f"byte {error.start} is not UTF-8"
        case RecursionError():
            return "it nests too deep"
    return "it holds a value that cannot be read"


def _files(folder: Path) -> tuple[str, ...]:
    found = []
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [(Path(parent) / name).relative_to(folder).as_posix() for name in names]
    return tuple(sorted(found))
