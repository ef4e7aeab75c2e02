"""Writes a config with its revision fixed to a commit, and its pickles to hashes, into an operator's folder.

The rest of the file's text is unchanged, including comments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import yaml

from sie_core.catalog.configs.reading import ConfigError, parse_config, read_config
from sie_core.catalog.configs.snapshot import FOUND_WEIGHTS
from sie_core.contracts import ModelConfig, PinnedFile

_HF_ID = re.compile(r"^hf_id:.*$", re.MULTILINE)
_PICKLES = re.compile(r"^pickles:.*\n(?:[ \t#].*\n|\n)*", re.MULTILINE)
_REVISION = re.compile(r"^hf_revision:.*\n?", re.MULTILINE)


def write_pinned(
    config: ModelConfig, commit: str, folder: Path, pickles: Mapping[str, PinnedFile] = MappingProxyType({})
) -> Path:
    """Write `config` with `hf_revision: commit` into `folder` and return the file; `pickles` are added to its pins.

    A config that is already in `folder` is changed in place; any other becomes a new file there.

    Raises:
        ConfigError: The file belongs to another config, or has changed since it was read.
        OSError: `folder` cannot be written.
    """
    origin = None if config.source == FOUND_WEIGHTS else Path(config.source)
    file = folder / f"{re.sub(r'[/:@]', '--', config.id)}.yaml"
    if origin is not None and origin.resolve().parent == folder.resolve():
        file = origin
    elif file.exists():
        raise ConfigError(f"{file} exists and is not the config of {config.id}: move it, or name another folder")
    text = _pinned(_text(config, origin), commit)
    pins = {**config.pickles, **pickles}
    if pickles:
        text = _with_pins(text, pins)
    _check(replace(config, hf_revision=commit, pickles=pins), text, file)
    folder.mkdir(parents=True, exist_ok=True)
    _write(file, text)
    return file


def _text(config: ModelConfig, origin: Path | None) -> str:
    if origin is None:
        return f"sie_id: {json.dumps(config.id)}\nhf_id: {json.dumps(config.hf_id)}\n"
    read_config(origin)
    return origin.read_text(encoding="utf-8")


def _pinned(text: str, commit: str) -> str:
    line = f"hf_revision: {commit}"
    if _HF_ID.search(text):
        return _HF_ID.sub(lambda found: f"{found[0]}\n{line}", _REVISION.sub("", text), count=1)
    data = {**yaml.safe_load(text), "hf_revision": commit}
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)


def _with_pins(text: str, pins: Mapping[str, PinnedFile]) -> str:
    """Replace the field `pickles` of a config's text."""
    written = {name: {"size": each.size, "sha256": each.sha256} for name, each in pins.items()}
    written = {name: {key: value for key, value in each.items() if value} for name, each in written.items()}
    if _HF_ID.search(text):
        rest = _PICKLES.sub("", text).rstrip("\n")
        return f"{rest}\n{yaml.safe_dump({'pickles': written}, sort_keys=False)}"
    return yaml.safe_dump({**yaml.safe_load(text), "pickles": written}, sort_keys=False, allow_unicode=True)


def _check(wanted: ModelConfig, text: str, file: Path) -> None:
    """Check that the new text differs from the config in force in nothing but the pins."""
    written = parse_config(yaml.safe_load(text), source=wanted.source, folder=file.parent)
    if wanted.source != FOUND_WEIGHTS and written != wanted:
        raise ConfigError(f"{wanted.source} is not what was read from it any more: try again")


def _write(file: Path, text: str) -> None:
    part = file.with_name(f".{file.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(file)
