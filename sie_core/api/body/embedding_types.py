"""The forms in which other APIs give a vector: numbers, their base64 text, or quantised."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from sie_core.postprocess import OUTPUT_DTYPES

EmbeddingType = Literal["float", "base64", "int8", "uint8", "binary", "ubinary"]
Vector = NDArray[np.float32]
_CASTS: Final = {dtype.name: dtype.cast for dtype in OUTPUT_DTYPES}


def _as_is(vector: Vector) -> Vector:
    return vector


def _base64(vector: Vector) -> str:
    return base64.b64encode(vector.astype("<f4", copy=False).data).decode()


def _signed_bits(vector: Vector) -> NDArray[np.int8]:
    """Pack one bit per dimension into signed bytes, `ubinary` less 128, as Jina and Cohere do."""
    return (_CASTS["ubinary"](vector) ^ 0x80).view(np.int8)


def bytes_in_base64(form: EmbeddingType, vector: Vector) -> str:
    """Write the bytes of a quantised vector as base64, as Voyage does."""
    return base64.b64encode(WRITE[form](vector).data).decode()


WRITE: Final[Mapping[EmbeddingType, Callable[[Vector], Any]]] = {
    "float": _as_is,
    "base64": _base64,
    "int8": _CASTS["int8"],
    "uint8": _CASTS["uint8"],
    "binary": _signed_bits,
    "ubinary": _CASTS["ubinary"],
}
"""Converts a float32 vector to its form in a reply; `base64` holds little-endian float32."""

JSON_FLOAT_BYTES: Final = 12.5
"""What a float32 of a vector takes in JSON, its comma included: 12.0 to 12.7 with 128 to 4,096 dimensions."""
JSON_INTEGER_BYTES: Final = 3.6
"""The same of a byte."""
FLOAT_BYTES: Final[Mapping[EmbeddingType, float]] = {
    "float": JSON_FLOAT_BYTES,
    "base64": 4 * 4 / 3,
    "int8": JSON_INTEGER_BYTES,
    "uint8": JSON_INTEGER_BYTES,
    "binary": JSON_INTEGER_BYTES / 8,
    "ubinary": JSON_INTEGER_BYTES / 8,
}
"""What a float32 of a vector becomes in each form, in bytes."""


def of_unit_length(vector: Vector) -> Vector:
    """Scale a vector to unit length; a zero vector stays as it is."""
    length = np.linalg.norm(vector)
    return vector / length if length > 0 else vector
