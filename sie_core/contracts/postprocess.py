"""The last step of an output: casting or quantising its array."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class OutputDtype:
    """One value of `output_dtype`.

    `cast` takes float32 of shape (..., dims) and returns the array that leaves, each row on its own.
    """

    name: str
    label: str
    """The `dtype` label on the wire, e.g. `binary` for `ubinary` too."""
    cast: Callable[[NDArray[np.float32]], NDArray[Any]]
    cast_sparse: Callable[[NDArray[np.float32]], NDArray[Any]] | None = None
    """For the values of a sparse vector; None leaves them float32."""
    sparse_label: str = "float32"
