"""Scores a document by its vectors and the query's, for models that only encode.

Dense and sparse vectors are compared by the model's own measure, by default the dot product. Multi-vectors are compared
by MaxSim, the late interaction of ColBERT (Khattab and Zaharia, arXiv 2004.12832): the sum, or the mean, of each query
token's best dot product.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sie_sdk import scoring

from sie_core.contracts import ItemOutput, OutputType, Similarity, SparseVector

LEAST_LENGTH = 1e-12
"""The least number a vector is divided by, as in PyTorch's `normalize`."""


def similarity(query: ItemOutput, document: ItemOutput, output: OutputType, by: Similarity | None = None) -> float:
    """Compare a query and a document by one output, in float32; larger means more alike.

    Args:
        query: The query's outputs.
        document: The document's outputs.
        output: The vectors to compare.
        by: The similarity; None for the dot product of dense and sparse vectors, and MaxSim of multi-vectors.

    Raises:
        ValueError: One of them lacks the output.
    """
    if output == "dense" and query.dense is not None and document.dense is not None:
        return _compare(query.dense, document.dense, by)
    if output == "sparse" and query.sparse is not None and document.sparse is not None:
        return _compare(*_over_all_indices(query.sparse, document.sparse), by)
    if output == "multivector" and query.multivector is not None and document.multivector is not None:
        sum_of_best = maxsim(query.multivector, document.multivector)
        return sum_of_best / max(len(query.multivector), 1) if by == "meanmaxsim" else sum_of_best
    raise ValueError(f"the query or the document has no {output} output")


class Comparison:
    """Compares documents with their query as the vectors come; from several threads at once."""

    def __init__(self, name: OutputType, by: Similarity | None) -> None:
        self._name = name
        self._by = by
        self._lock = threading.Lock()
        self._query: ItemOutput | None = None
        # Documents that were there before the query. Other outputs are dropped at once: a thousand multi-vectors are
        # large.
        self._waiting: dict[int, ItemOutput] = {}

    def add(self, item: int | None, output: ItemOutput) -> dict[int, float]:
        """Take the vectors of a document, or of the query (None); return the scores that can be told now, by item."""
        with self._lock:
            if item is None:
                self._query, compared, self._waiting = output, self._waiting, {}
            elif self._query is None:
                self._waiting[item], compared = output, {}
            else:
                compared = {item: output}
            query = self._query
        # Without a query there is nothing to compare.
        return {item: similarity(query, each, self._name, self._by) for item, each in compared.items() if query}


def maxsim(query: NDArray[Any], document: NDArray[Any]) -> float:
    """Compare multi-vectors of shapes (query tokens, dims) and (document tokens, dims); 0 if one has no token."""
    if not len(query) or not len(document):
        return 0.0
    return scoring.maxsim(query, document)[0]


def _compare(query: NDArray[Any], document: NDArray[Any], by: Similarity | None) -> float:
    if by == "euclidean":
        return -float(np.linalg.norm(query - document))
    if by == "manhattan":
        return -float(np.abs(query - document).sum())
    product = float(np.dot(query, document))
    if by == "cosine":
        return product / (_length(query) * _length(document))
    return product


def _length(vector: NDArray[Any]) -> float:
    return max(float(np.linalg.norm(vector)), LEAST_LENGTH)


def _over_all_indices(query: SparseVector, document: SparseVector) -> tuple[NDArray[Any], NDArray[Any]]:
    """Lay the values out over the indices that either has; indices ascend and are unique."""
    indices = np.union1d(query.indices, document.indices)
    filled = np.zeros((2, len(indices)), dtype=np.float32)
    for row, sparse in zip(filled, (query, document), strict=True):
        row[np.searchsorted(indices, sparse.indices)] = sparse.values
    return filled[0], filled[1]
