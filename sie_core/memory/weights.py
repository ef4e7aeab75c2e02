"""Computes the memory that a folder of weights will take, from the headers of its safetensors files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sie_core.contracts import is_pickled

WIDTHS = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2}
"""Bytes per number of the types that a load converts; others keep their width."""
PRECISIONS = {"float32": 4, "bfloat16": 2, "float16": 2}
MOST_HEADER_BYTES = 100_000_000
"""The limit of the safetensors format."""


def weight_bytes(folder: Path, files: Iterable[str], precision: str) -> int:
    """Return the bytes of all tensors in the safetensors among `files`, floating-point ones at `precision`.

    A file that cannot be read counts by its size; its load will report the damage. So do pickled weights, which are
    converted at their first load, where there are no safetensors.
    """
    names = list(files)
    if found := [folder / name for name in names if name.endswith(".safetensors")]:
        return sum(_bytes(file, PRECISIONS.get(precision, 4)) for file in found)
    return sum(_size(folder / name) for name in names if is_pickled(name))


def _bytes(file: Path, width: int) -> int:
    try:
        with file.open("rb") as opened:
            size = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(min(size, MOST_HEADER_BYTES)))
        return sum(_tensor(entry, width) for name, entry in header.items() if name != "__metadata__")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return _size(file)


def _size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else 0


def _tensor(entry: Mapping[str, Any], width: int) -> int:
    begin, end = entry["data_offsets"]
    return int(end - begin) * width // WIDTHS.get(entry["dtype"], width)
