"""The values of `output_dtype`: casting and quantising, the last step before encoding.

Each row (the last axis) is quantised on its own, and its scale and offset are not returned: that is the wire contract.
So `int8` keeps the direction of a row, loses its length, and ranks by cosine; in a dot product of `int8` rows, each row
has a weight of its own. Packed bits rank by Hamming distance. `uint8` shifts each row by its own offset, so no ranking
survives.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import OutputDtype


def _float32(rows: NDArray[np.float32]) -> NDArray[Any]:
    return rows


def _float16(rows: NDArray[np.float32]) -> NDArray[Any]:
    with np.errstate(over="ignore"):  # an overflow becomes infinity, which the encoder refuses by name
        return rows.astype(np.float16)


def _int8(rows: NDArray[np.float32]) -> NDArray[Any]:
    """Scale each row's largest magnitude to 127, rounding halves to even; a zero row stays zero.

    One scale for all rows (127 for unit length) would keep dot products, but most values of a long vector are small: at
    1024 dimensions, a typical value would use 4 of the 127 steps.
    """
    peak = np.abs(rows).max(axis=-1, keepdims=True, initial=0.0)
    quantised: NDArray[Any] = np.rint(rows / np.where(peak == 0.0, np.float32(1.0), peak) * np.float32(127.0))
    return quantised.astype(np.int8)


def _uint8(rows: NDArray[np.float32]) -> NDArray[Any]:
    """Stretch each row's range over 0 to 255; a constant row becomes zero."""
    low = rows.min(axis=-1, keepdims=True, initial=np.inf)
    span = rows.max(axis=-1, keepdims=True, initial=-np.inf) - low
    quantised: NDArray[Any] = np.rint((rows - low) / np.where(span == 0.0, np.float32(1.0), span) * np.float32(255.0))
    return quantised.astype(np.uint8)


def _binary(rows: NDArray[np.float32]) -> NDArray[Any]:
    """Keep one bit per dimension, set if it is above zero; the first dimension is the highest bit."""
    return np.packbits(rows > 0, axis=-1)


OUTPUT_DTYPES: tuple[OutputDtype, ...] = (
    OutputDtype("float32", "float32", _float32),
    OutputDtype("float16", "float16", _float16, cast_sparse=_float16, sparse_label="float16"),
    OutputDtype("int8", "int8", _int8),
    OutputDtype("uint8", "uint8", _uint8),
    OutputDtype("binary", "binary", _binary),
    OutputDtype("ubinary", "binary", _binary),
)
"""The built-in dtypes; plugins may register more."""
