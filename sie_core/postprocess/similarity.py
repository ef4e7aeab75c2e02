"""Scores a document by its vectors and the query's: how a model that only encodes answers `score`. Knows arrays only.

Dense and sparse vectors are compared by their dot product, multi-vectors by MaxSim, the late interaction of ColBERT
(Khattab and Zaharia, arXiv 2004.12832): the sum over the query's tokens of each one's best dot product.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sie_sdk import scoring

from sie_core.contracts import ItemOutput, OutputType, SparseVector


def similarity(query: ItemOutput, document: ItemOutput, output: OutputType) -> float:
    """Compare a query and a document by one of their outputs, in float32.

    Raises:
        ValueError: One of them lacks it.
    """
    if output == "dense" and query.dense is not None and document.dense is not None:
        return float(np.dot(query.dense, document.dense))
    if output == "sparse" and query.sparse is not None and document.sparse is not None:
        return sparse_dot(query.sparse, document.sparse)
    if output == "multivector" and query.multivector is not None and document.multivector is not None:
        return maxsim(query.multivector, document.multivector)
    raise ValueError(f"the query or the document has no {output} output")


def maxsim(query: NDArray[Any], document: NDArray[Any]) -> float:
    """Compare multi-vectors of shapes (query tokens, dims) and (document tokens, dims); 0 where one has no token."""
    if not len(query) or not len(document):
        return 0.0
    return scoring.maxsim(query, document)[0]


def sparse_dot(query: SparseVector, document: SparseVector) -> float:
    """Add up the products of the values both have; indices ascend and are unique."""
    _, ours, theirs = np.intersect1d(query.indices, document.indices, assume_unique=True, return_indices=True)
    return float(np.dot(query.values[ours], document.values[theirs]))
