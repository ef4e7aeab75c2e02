"""Tables of numbers by token, read from safetensors into NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from sie_core.contracts import ModelLoadError

Table = NDArray[Any]
WEIGHTS = "model.safetensors"


def read_tables(folder: Path, needed: Sequence[str], wanted: Sequence[str] = ()) -> dict[str, Table]:
    """Read tensors of `model.safetensors`: the first existing one of `needed`, and all existing ones of `wanted`.

    Raises:
        ModelLoadError: `CORRUPT`: the file is missing or damaged, or has none of `needed`.
    """
    where = f"{folder.name}/{WEIGHTS}"
    try:
        with safe_open(folder / WEIGHTS, framework="np") as file:
            names = set(file.keys())
            found = [name for name in needed if name in names][:1]
            tables = {name: np.asarray(file.get_tensor(name)) for name in (*found, *wanted) if name in names}
    except FileNotFoundError:
        raise ModelLoadError("CORRUPT", f"The folder of weights holds no {where}.") from None
    except (OSError, SafetensorError, TypeError, ValueError) as error:
        # NumPy has no bfloat16, which safetensors then reports as a TypeError.
        raise ModelLoadError("CORRUPT", f"{where} cannot be read ({type(error).__name__}).") from error
    if not found:
        raise ModelLoadError("CORRUPT", f"{where} holds no tensor {' or '.join(needed)}.")
    return tables


def table_shape(folder: Path, needed: Sequence[str]) -> tuple[int, ...] | None:
    """Read the shape of the first existing tensor of `needed`, without its data; None if the file is not here."""
    try:
        with safe_open(folder / WEIGHTS, framework="np") as file:
            names = set(file.keys())
            name = next((each for each in needed if each in names), None)
            return None if name is None else tuple(file.get_slice(name).get_shape())
    except (OSError, SafetensorError):
        return None
