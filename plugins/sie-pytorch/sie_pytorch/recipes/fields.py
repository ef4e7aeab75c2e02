"""Checked reading of single fields of the modules' configs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sie_pytorch.recipes.settings import NotUnderstoodError

TOKENS = "token_embeddings"
SENTENCE = "sentence_embedding"


def needed(config: Mapping[str, Any], key: str, where: str) -> int:
    """Read a size that must be there.

    Raises:
        NotUnderstoodError: It is missing or none.
    """
    value = size(config, key, where)
    if value is None:
        raise NotUnderstoodError(f"the config of its {where} lacks {key}")
    return value


def size(config: Mapping[str, Any], key: str, where: str) -> int | None:
    """Read a size that may be missing.

    Raises:
        NotUnderstoodError: It is no whole number from 1.
    """
    value = config.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise NotUnderstoodError(f"{where}: {key} is {value!r}, not a whole number from 1")
    return value


def require_features(config: Mapping[str, Any], kind: str, wanted: str, default: str) -> None:
    """Check what a module reads and writes.

    Raises:
        NotUnderstoodError: Another feature than `wanted`.
    """
    read = config.get("module_input_name") or default
    written = config.get("module_output_name") or read
    if others := sorted(map(str, {read, written} - {wanted})):
        raise NotUnderstoodError(f"its {kind} works on {', '.join(others)}")
