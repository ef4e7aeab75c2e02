"""The weights of heads, read from safetensors files as float32 arrays."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from sie_core.contracts import ModelLoadError

Weights = NDArray[np.float32]


def read_weights(folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Weights]:
    """Read the tensors of a module from its `model.safetensors`.

    Raises:
        ModelLoadError: `CORRUPT`: the file is missing or damaged, or a tensor is missing or of another shape.
    """
    file = folder / "model.safetensors"
    name = f"{folder.name}/{file.name}"
    with _opened(file, name) as tensors:
        found = {key: tuple(tensors.get_slice(key).get_shape()) for key in tensors.keys()}  # noqa: SIM118
        if found != dict(shapes):
            raise ModelLoadError("CORRUPT", f"{name} holds {found}, but its config asks for {dict(shapes)}.")
        return {key: _tensor(tensors, file, key) for key in found}


def read_named(file: Path, names: Sequence[str]) -> dict[str, Weights]:
    """Read the tensors called `names` of a safetensors file that may hold others.

    Raises:
        ModelLoadError: `CORRUPT`: the file is missing or damaged, or lacks one of them.
    """
    with _opened(file, file.name) as tensors:
        lacking = sorted(set(names) - set(tensors.keys()))
        if lacking:
            raise ModelLoadError("CORRUPT", f"{file.name} lacks {', '.join(lacking)}.")
        return {name: _tensor(tensors, file, name) for name in names}


def read_first(folder: Path, names: Sequence[str], rows: Sequence[int] | None = None) -> Weights | None:
    """Read the first of the tensors called `names` that the checkpoint's files hold; None if they hold none.

    Args:
        folder: The checkpoint's.
        names: Their names, whatever stands before them: `pooler.dense.weight` is also `bert.pooler.dense.weight`.
        rows: The rows to read; None for the whole tensor.

    Raises:
        ModelLoadError: `CORRUPT`: a file is damaged. `CONFIG`: it has no such row.
    """
    for name in names:
        for file in sorted(folder.glob("*.safetensors")):
            with _opened(file, file.name) as tensors:
                for key in tensors.keys():  # noqa: SIM118 - not a mapping
                    if key == name or key.endswith(f".{name}"):
                        return _tensor(tensors, file, key, rows)
    return None


def read_rows(folder: Path, name: str, rows: Sequence[int]) -> Weights:
    """Read some rows of the checkpoint's tensor called `name`, whatever stands before it.

    Raises:
        ModelLoadError: `CORRUPT`: no file holds it, or a file is damaged. `CONFIG`: it has no such row.
    """
    found = read_first(folder, (name,), rows)
    if found is None:
        raise ModelLoadError("CORRUPT", f"No safetensors file holds {name}.")
    return found


@contextmanager
def _opened(file: Path, name: str) -> Iterator[Any]:
    try:
        with safe_open(file, framework="np") as tensors:
            yield tensors
    except FileNotFoundError:
        raise ModelLoadError("CORRUPT", f"{name} is missing.") from None
    except (SafetensorError, OSError, TypeError) as error:
        raise ModelLoadError("CORRUPT", f"{name} cannot be read as safetensors.") from error


def _tensor(tensors: Any, file: Path, key: str, rows: Sequence[int] | None = None) -> Weights:
    """Read a tensor of an open file, or some of its rows."""
    part = tensors.get_slice(key)
    size = part.get_shape()[0] if rows is not None else 0
    if rows is not None and not all(0 <= row < size for row in rows):
        raise ModelLoadError("CONFIG", f"{key} has {size} rows, and not all of {list(rows)}.")
    if part.get_dtype() == "BF16":
        return _widened(file, key, rows)
    found = tensors.get_tensor(key) if rows is None else np.stack([part[row : row + 1][0] for row in rows])
    return np.asarray(found).astype(np.float32, copy=False)


def _widened(file: Path, key: str, rows: Sequence[int] | None) -> Weights:
    """Read a bfloat16 tensor, a type that NumPy lacks: the upper half of float32. The file has been checked."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        entry = json.loads(stream.read(length))[key]
    start = 8 + length + entry["data_offsets"][0]
    halves: NDArray[np.uint16] = np.memmap(file, "<u2", "r", start, tuple(entry["shape"]))
    part = halves if rows is None else halves[list(rows)]
    return (part.astype(np.uint32) << 16).view(np.float32)
