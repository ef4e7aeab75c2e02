"""Safetensors files, mapped: tensors are views of the files, and are read in float32 where they are used.

A header is checked before anything is read by it: no tensor lies beyond its file, and none has another size than its
shape says.
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import ModelLoadError

LONGEST_HEADER = 100_000_000
"""Bytes: the bound of the safetensors library itself."""
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "U8": "u1", "BOOL": "?"}
"""NumPy's dtype of each kind of numbers that is read; NumPy lacks bfloat16, the upper half of float32."""
FLOATS = frozenset({"F64", "F32", "F16", "BF16"})

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """One tensor of a mapped file."""

    name: str
    file: str
    """The file's name, for messages."""
    dtype: str
    """As safetensors names it."""
    shape: tuple[int, ...]
    stored: NDArray[Any]
    """A view of the file; of bfloat16, its bits."""
    mapping: mmap.mmap
    start: int
    """The first byte in the file."""

    def read(self, rows: Any = ...) -> Floats:
        """Return the tensor, or some of its rows, in float32: a view of the file if it is stored so.

        Raises:
            ModelLoadError: `CORRUPT`: it holds no floating point numbers.
        """
        if self.dtype not in FLOATS:
            raise ModelLoadError(
                "CORRUPT", f"{self.name} in {self.file} holds {self.dtype}, no floating point numbers."
            )
        part = self.stored[rows]
        if self.dtype == "BF16":
            widened: Floats = (part.astype(np.uint32) << 16).view(np.float32)
            return widened
        return np.asarray(part, dtype=np.float32)

    def release(self) -> None:
        """Give the pages back that lie within it: the next access reads them from the file again."""
        first = -(-self.start // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (self.start + self.stored.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if first < end and hasattr(mmap, "MADV_DONTNEED"):
            self.mapping.madvise(mmap.MADV_DONTNEED, first, end - first)


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Map the weights in a checkpoint's folder.

    Those of `model.safetensors`, else of the files that `model.safetensors.index.json` lists, else of all.

    Raises:
        ModelLoadError: `CORRUPT`: a file is missing, or its header is damaged. Names the file, and the tensor if it is
            one tensor's.
    """
    found: dict[str, Tensor] = {}
    for file in _files(folder):
        found |= read_file(file)
    return found


def _files(folder: Path) -> list[Path]:
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if whole.is_file():
        return [whole]
    if not index.is_file():
        return sorted(folder.glob("*.safetensors"))
    try:
        named = set(json.loads(index.read_bytes())["weight_map"].values())
        files = sorted(folder / name for name in named)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelLoadError("CORRUPT", f"{index.name} cannot be read.") from error
    if outside := [file.name for file in files if file.parent != folder or file.suffix != ".safetensors"]:
        raise ModelLoadError("CORRUPT", f"{index.name} lists {outside[0]}, which is no safetensors file beside it.")
    return files


def read_file(file: Path) -> dict[str, Tensor]:
    """Map one file.

    Raises:
        ModelLoadError: `CORRUPT`: as `read_tensors`.
    """
    try:
        with file.open("rb") as stream:
            mapping = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise ModelLoadError("CORRUPT", f"{file.name} is missing.") from None
    except (OSError, ValueError) as error:  # ValueError: it is empty
        raise ModelLoadError("CORRUPT", f"{file.name} cannot be read as safetensors: {error}.") from error
    data, header = _header(file.name, mapping)
    return {
        name: _tensor(file.name, mapping, data, name, entry) for name, entry in header.items() if name != "__metadata__"
    }


def _header(file: str, mapping: mmap.mmap) -> tuple[int, Mapping[str, Any]]:
    """Read the header of a file: the place of its data, and the entry of each tensor."""
    length = int.from_bytes(mapping[:8], "little")
    if len(mapping) < 8 or length > min(LONGEST_HEADER, len(mapping) - 8):
        raise ModelLoadError("CORRUPT", f"{file} is cut off, or is no safetensors file: its header does not fit in it.")
    try:
        header = json.loads(mapping[8 : 8 + length])
    except (ValueError, RecursionError) as error:
        raise ModelLoadError("CORRUPT", f"{file} cannot be read as safetensors: its header is no JSON.") from error
    if not isinstance(header, dict):
        raise ModelLoadError("CORRUPT", f"{file} cannot be read as safetensors: its header is no object.")
    return 8 + length, header


def _tensor(file: str, mapping: mmap.mmap, data: int, name: str, entry: Any) -> Tensor:
    """Check the entry of a tensor, and view its numbers."""
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        numbers = (*shape, begin, end)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelLoadError("CORRUPT", f"{name} in {file} has no entry of safetensors: {_short(entry)}.") from error
    if not all(type(number) is int and number >= 0 for number in numbers) or not isinstance(dtype, str):
        raise ModelLoadError("CORRUPT", f"{name} in {file} has no entry of safetensors: {_short(entry)}.")
    if begin > end or data + end > len(mapping):
        raise ModelLoadError("CORRUPT", f"{name} lies beyond the end of {file}, which is cut off or damaged.")
    if dtype not in DTYPES:
        return Tensor(name, file, dtype, tuple(shape), np.zeros(0, dtype="u1"), mapping, data + begin)
    kind = np.dtype(DTYPES[dtype])
    if math.prod(shape) * kind.itemsize != end - begin:
        raise ModelLoadError(
            "CORRUPT",
            f"{name} in {file} takes {end - begin} bytes, which {dtype} of the shape {_short(shape)} does not.",
        )
    flat = np.frombuffer(memoryview(mapping)[data + begin : data + end], dtype=kind)
    try:
        stored = flat.reshape(shape)
    except (ValueError, OverflowError) as error:  # more dimensions than NumPy has, or larger ones
        raise ModelLoadError("CORRUPT", f"{name} in {file} has the shape {_short(shape)}.") from error
    return Tensor(name, file, dtype, tuple(shape), stored, mapping, data + begin)


def _short(value: object) -> str:
    told = repr(value)
    return told if len(told) <= 100 else f"{told[:100]}…"
