"""What an adapter gives back for one item, before postprocessing and encoding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SparseVector:
    """A sparse vector over a vocabulary of `dims` entries.

    `indices` is int32 of shape (n,), ascending and unique; `values` is float32 of shape (n,).
    """

    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    dims: int | None = None


@dataclass(frozen=True, slots=True)
class Entity:
    """A span of the item's text; `start` and `end` are character offsets, end exclusive."""

    text: str
    label: str
    score: float
    start: int
    end: int


@dataclass(slots=True)
class ItemOutput:
    """The outputs of one item; a field is None where the task did not ask for it."""

    dense: NDArray[np.float32] | None = None
    """Shape (dims,)."""
    sparse: SparseVector | None = None
    multivector: NDArray[np.float32] | None = None
    """Shape (tokens, token_dims)."""
    score: float | None = None
    entities: tuple[Entity, ...] | None = None
    normalized: bool = False
    """Whether `dense` has unit length; shortened to a Matryoshka size, it is brought back to it."""
