"""Sparse vectors on the host: entries of many texts split up, and cut to the largest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import ItemOutput, SparseVector

__all__ = ["largest", "sparse_outputs"]


def sparse_outputs(arrays: Sequence[NDArray[Any]], most: Sequence[int | None], dims: int) -> list[ItemOutput]:
    """Split entries into one sparse vector a text.

    Args:
        arrays: Number of entries per text; all indices, ascending within a text; all weights.
        most: Number of largest entries that each text keeps; None keeps all.
        dims: Entries of the vocabulary.
    """
    counts, indices, values = arrays
    stops = np.cumsum(counts)
    return [
        ItemOutput(sparse=largest(SparseVector(indices[start:stop], values[start:stop], dims), limit))
        for start, stop, limit in zip(stops - counts, stops, most, strict=True)
    ]


def largest(vector: SparseVector, most: int | None) -> SparseVector:
    """Keep the `most` largest entries of a vector, whatever their sign; None keeps all."""
    if most is None or len(vector.values) <= most:
        return vector
    kept = np.sort(np.argpartition(-np.abs(vector.values), most - 1)[:most])
    return SparseVector(vector.indices[kept], vector.values[kept], vector.dims)
