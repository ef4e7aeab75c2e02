"""Vectors from texts by hash: the same in every process, independent of other texts.

A row depends on its text only, so a shared batch cannot change it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import SparseVector


def dense(text: str, dims: int) -> NDArray[np.float32]:
    """Make a vector of unit length from SHAKE-256 of `text`; shape (dims,)."""
    digest = hashlib.shake_256(text.encode("utf-8", "surrogatepass")).digest(4 * dims)
    return _unit(np.frombuffer(digest, dtype="<u4").astype(np.float64) / 2**31 - 1.0)


def sparse(words: Sequence[str], dims: int) -> SparseVector:
    """Weigh each word by log(1 + its count) at the index its hash gives in a vocabulary of `dims` entries."""
    counts = Counter(_index(word, dims) for word in words)
    indices = np.array(sorted(counts), dtype=np.int32)
    values = np.log1p(np.array([counts[index] for index in indices], dtype=np.float32))
    return SparseVector(indices, values, dims)


def multivector(words: Sequence[str], dims: int) -> NDArray[np.float32]:
    """Make one unit vector a word; shape (words, dims)."""
    return gathered(*distinct(words, dims))


def distinct(words: Sequence[str], dims: int) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """Make one unit vector per distinct word, shape (distinct words, dims), and the index of each word's vector."""
    places = {word: place for place, word in enumerate(dict.fromkeys(words))}
    rows = np.empty((len(places), dims), dtype=np.float32)
    for word, place in places.items():
        rows[place] = dense(word, dims)
    return rows, np.fromiter((places[word] for word in words), np.intp, len(words))


def gathered(rows: NDArray[np.float32], places: NDArray[np.intp]) -> NDArray[np.float32]:
    """Scatter the rows of `distinct` to the words; shape (words, dims)."""
    return rows.take(places, axis=0)


def merged_dense(vectors: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Take the mean of the windows of one text, at unit length; shape (dims,)."""
    return _unit(np.mean(vectors, axis=0, dtype=np.float64))


def merged_sparse(vectors: Sequence[SparseVector]) -> SparseVector:
    """Take the larger weight of each index among the windows of one text."""
    weights: dict[int, float] = {}
    for vector in vectors:
        for index, value in zip(vector.indices.tolist(), vector.values.tolist(), strict=True):
            weights[index] = max(value, weights.get(index, value))
    indices = np.array(sorted(weights), dtype=np.int32)
    return SparseVector(indices, np.array([weights[i] for i in sorted(weights)], dtype=np.float32), vectors[0].dims)


def _unit(vector: NDArray[np.float64]) -> NDArray[np.float32]:
    return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)


def _index(word: str, dims: int) -> int:
    digest = hashlib.sha256(word.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "little") % dims
