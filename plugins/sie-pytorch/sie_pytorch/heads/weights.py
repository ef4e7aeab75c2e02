"""The weights of head modules, read from safetensors files and from pickles that a config pins."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sie_text.recipe import content_fault, most_bytes

from sie_core.contracts import ModelLoadError, PinnedFile

if TYPE_CHECKING:
    import torch


def read_weights(folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    """Read the tensors of a module from its `model.safetensors`, as float32 on the CPU.

    Raises:
        ModelLoadError: `CORRUPT`: the file is missing or damaged, or a tensor is missing or of another shape.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    name = f"{folder.name}/model.safetensors"
    try:
        tensors = load_file(folder / "model.safetensors")
    except FileNotFoundError:
        raise ModelLoadError("CORRUPT", f"{name} is missing.") from None
    except (SafetensorError, OSError) as error:
        raise ModelLoadError("CORRUPT", f"{name} cannot be read as safetensors.") from error
    found = {key: tuple(tensor.shape) for key, tensor in tensors.items()}
    if found != dict(shapes):
        raise ModelLoadError("CORRUPT", f"{name} holds {found}, but its config asks for {dict(shapes)}.")
    return {key: tensor.float() for key, tensor in tensors.items()}


def read_named(file: Path, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """Read the tensors called `names` of a safetensors file that may hold others, as float32 on the CPU.

    Raises:
        ModelLoadError: `CORRUPT`: the file is missing or damaged, or lacks one of them.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as tensors:
            lacking = sorted(set(names) - set(tensors.keys()))
            if lacking:
                raise ModelLoadError("CORRUPT", f"{file.name} lacks {', '.join(lacking)}.")
            return {name: tensors.get_tensor(name).float() for name in names}
    except FileNotFoundError:
        raise ModelLoadError("CORRUPT", f"{file.name} is missing.") from None
    except (SafetensorError, OSError) as error:
        raise ModelLoadError("CORRUPT", f"{file.name} cannot be read as safetensors.") from error


def read_pinned(file: Path, pinned: PinnedFile, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """Read the tensors called `names` of a pickle that matches its pinned hash, as float32 on the CPU.

    The hashed bytes are the bytes that are read, and PyTorch restricts them to tensors.

    Raises:
        ModelLoadError: `CORRUPT`: the file differs from the pinned one, or holds no such tensors.
    """
    import torch

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


def read_rows(folder: Path, name: str, rows: Sequence[int]) -> torch.Tensor:
    """Read some rows of the checkpoint's tensor called `name`, whatever stands before it, as float32 on the CPU.

    Raises:
        ModelLoadError: `CORRUPT`: no file holds it, or a file is damaged. `CONFIG`: it has no such row.
    """
    import torch
    from safetensors import SafetensorError, safe_open

    try:
        for file in sorted(folder.glob("*.safetensors")):
            with safe_open(file, framework="pt") as tensors:
                for key in tensors.keys():  # noqa: SIM118 - not a mapping
                    if key == name or key.endswith(f".{name}"):
                        table = tensors.get_slice(key)
                        size = table.get_shape()[0]
                        if not all(0 <= row < size for row in rows):
                            raise ModelLoadError("CONFIG", f"{key} has {size} rows, and not all of {list(rows)}.")
                        return torch.stack([table[row : row + 1][0] for row in rows]).float()
    except (SafetensorError, OSError) as error:
        raise ModelLoadError("CORRUPT", "The weights cannot be read as safetensors.") from error
    raise ModelLoadError("CORRUPT", f"No safetensors file holds {name}.")
