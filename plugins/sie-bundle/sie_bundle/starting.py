"""Begins a bundle: a file with what was asked for, and every other field as a comment."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from sie_bundle.bundles.names import FILE, NAME
from sie_bundle.bundles.reading import BundleError, BundleFile, shipped_bundles
from sie_bundle.errors import BundlingError
from sie_core.catalog import short

_TEXT = """\
# What is installed together in one image, and what its workers serve. `sie bundle check` says what is wrong with it.
name: {name}
priority: {priority}        # the lowest that serves a model wins; a number of its own among the bundles of a folder
python: "3.11"
plugins:
{plugins}
{models}
# settings:            # what the image sets; a variable given at the start wins
#   SIE_MAX_BATCH_REQUESTS: 32
# overrides:           # where distributions want what cannot be had together
#   - {{package: numpy, spec: ">=2", reason: "who wants what, and why the other works all the same", until: 2030-01-31}}
platforms:
  cpu:
    base: {base}
"""
_NO_MODELS = """\
# models:              # served whatever the plugins claim; pin what the image holds
#   - {id: org/name, revision: "<40 hex digits>", bake: true}"""


def begin_bundle(folder: Path, plugins: Sequence[str], models: Sequence[str], priority: int) -> Path:
    """Write the file of a new bundle and return it.

    Raises:
        BundlingError: The folder's name is none of a bundle, it holds a bundle already, or a value is wrong.
    """
    name, file = folder.absolute().name, folder / FILE
    if not re.fullmatch(NAME, name):
        raise BundlingError(f"{short(name)} is no name of a bundle: letters, digits, _ and -, at most 64")
    if file.exists():
        raise BundlingError(f"{file}: exists already; change it, or name another folder")
    text = _TEXT.format(name=name, priority=priority, plugins=_entries(plugins), models=_models(models), base=_base())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        BundleFile.read(file)
    except OSError as error:
        raise BundlingError(f"{file}: cannot be written: {error.strerror}") from error
    except BundleError as error:
        file.unlink()
        raise BundlingError(f"nothing is written, as it would be wrong: {error}") from None
    return file


def _base() -> str:
    """Return the image that the bundles that ship stand on."""
    stated = BundleFile.read(shipped_bundles() / "default" / FILE).whole.platforms["cpu"].base
    assert stated is not None
    return stated


def _models(models: Sequence[str]) -> str:
    return f"models:\n{_entries(models)}" if models else _NO_MODELS


def _entries(values: Sequence[str]) -> str:
    return "\n".join(f"  - {json.dumps(value)}" for value in values)
