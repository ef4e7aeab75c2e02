"""Writes safetensors tensor by tensor: the package `safetensors` copies all of them first.

The format is documented at https://huggingface.co/docs/safetensors: a length, a JSON header, the tensors without gaps.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from sie_core.contracts import ModelLoadError

DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
ALIGNMENT = 8
"""The header's length in bytes is a multiple of it, so that tensors of any type can be mapped."""


def write_safetensors(tensors: Mapping[str, torch.Tensor], file: Path, notes: Mapping[str, str]) -> None:
    """Write tensors of the CPU to `file`, which appears as a whole under its name; `notes` are added to its metadata.

    A tensor with several names is written once. The other names are in the metadata, as transformers writes them.

    Raises:
        ModelLoadError: `STORAGE`: it cannot be written. `CORRUPT`: a tensor's type is unknown.
    """
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    first: dict[Any, str] = {}
    same = {name: first.setdefault(_place(tensors[name]), name) for name in names}
    header: dict[str, Any] = {"__metadata__": {"format": "pt", **notes, **{a: b for a, b in same.items() if a != b}}}
    end = 0
    for name in (each for each in names if same[each] == each):
        tensor = tensors[name]
        if tensor.dtype not in DTYPES:
            raise ModelLoadError("CORRUPT", f"{name} is of the type {tensor.dtype}, which safetensors do not hold.")
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    # The suffix of partial files, which the cache clears away where a process died.
    part = file.with_name(f"{file.name}.{uuid.uuid4().hex}.incomplete")
    try:
        with part.open("wb") as stream:
            stream.write(len(text).to_bytes(8, "little") + text)
            for name in (each for each in header if each != "__metadata__"):
                stream.write(_bytes(tensors[name]))
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(file)
    except OSError as error:
        raise ModelLoadError(
            "STORAGE",
            f"{file.name}, the copy of the pickled weights, cannot be written beside them ({error.strerror}): make "
            "room, or the folder writable, or put safetensors there.",
        ) from error
    finally:
        part.unlink(missing_ok=True)


def _place(tensor: torch.Tensor) -> tuple[object, ...]:
    """Identify what a tensor shows of its memory; one without elements shows nothing of it."""
    return (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()) if tensor.numel() else (object(),)


def _bytes(tensor: torch.Tensor) -> memoryview:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data
