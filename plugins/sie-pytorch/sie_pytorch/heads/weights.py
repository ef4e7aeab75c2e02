"""The weights of heads as tensors, read from safetensors files and from pickles that a config pins."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import torch
from sie_text import heads as host
from sie_text.recipe import content_fault, most_bytes

from sie_core.contracts import ModelLoadError, PinnedFile


def read_named(file: Path, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """Read the tensors called `names` of a safetensors file that may hold others, as float32 on the CPU.

    Raises:
        ModelLoadError: `CORRUPT`: the file is missing or damaged, or lacks one of them.
    """
    return {name: torch.from_numpy(array) for name, array in host.read_named(file, names).items()}


def read_rows(folder: Path, name: str, rows: Sequence[int]) -> torch.Tensor:
    """Read some rows of the checkpoint's tensor called `name`, whatever stands before it, as float32 on the CPU.

    Raises:
        ModelLoadError: `CORRUPT`: no file holds it, or a file is damaged. `CONFIG`: it has no such row.
    """
    return torch.from_numpy(host.read_rows(folder, name, rows))


def read_pinned(file: Path, pinned: PinnedFile, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """Read the tensors called `names` of a pickle that matches its pinned hash, as float32 on the CPU.

    The hashed bytes are the bytes that are read, and PyTorch restricts them to tensors.

    Raises:
        ModelLoadError: `CORRUPT`: the file differs from the pinned one, or holds no such tensors.
    """
    try:
        with file.open("rb") as stream:
            content = stream.read(most_bytes(pinned) + 1)
    except OSError as error:
        raise ModelLoadError("CORRUPT", f"{file.name} cannot be read.") from error
    if fault := content_fault(content, pinned):
        raise ModelLoadError("CORRUPT", f"{file.name} is not the file that the model's config pins: it {fault}.")
    try:
        tensors = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        return {name: tensors[name].float() for name in names}
    except Exception as error:  # an unpickler fails in any way
        raise ModelLoadError("CORRUPT", f"{file.name} holds no tensors {' and '.join(names)}.") from error
