"""Late interaction on the client: MaxSim of multi-vectors, as ColBERT ranks documents. It knows arrays and no client.

Khattab and Zaharia, "ColBERT: Efficient and Effective Passage Search via Contextualized Late Interaction over BERT"
(arXiv 2004.12832): the score is the sum over the query's tokens of each one's largest dot product with a token of the
document. The best possible score of unit vectors is the number of query tokens.

Multi-vectors are taken in the dtypes the server returns: `float32`, `float16`, `int8`, and packed bits with
`binary=True`. Other `uint8` is refused: its rows were shifted by amounts that are not sent, so their dot products mean
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Documents = Sequence[NDArray[Any]] | NDArray[Any]
"""A list of arrays of shape (tokens, dims), one such array as one document, or a stack (documents, tokens, dims)."""

_REMEDY = (
    "ask the server for `output_dtype` float16 or int8; uint8 can be scored only where it is packed bits, and "
    "binary=True says so"
)


def maxsim(query: NDArray[Any], documents: Documents, *, normalize: bool = False, binary: bool = False) -> list[float]:
    """Score documents against one query; one score a document, in their order.

    Args:
        query: The query's multi-vector, shape (tokens, dims).
        documents: Their multi-vectors; their numbers of tokens may differ.
        normalize: Give every token unit length first. Models of unit vectors need it for `int8` alone, whose scale
            differs from token to token.
        binary: The `uint8` arrays among them are packed bits, eight dimensions a byte (`output_dtype="binary"`); a bit
            counts as +1 or -1. A query of floats says how many bits are dimensions and not padding.

    Raises:
        ValueError: An array is not of that shape, has no tokens, other dimensions than the query, or a dtype that
            cannot be scored; it is named with its position.
    """
    scores: list[float] = _score({"query": query}, documents, normalize, binary)[0].tolist()
    return scores


def maxsim_batch(
    queries: Documents, documents: Documents, *, normalize: bool = False, binary: bool = False
) -> NDArray[np.float32]:
    """Score documents against several queries; `queries` takes what `documents` does, and the rest is as in `maxsim`.

    Returns:
        Float32 of shape (queries, documents).

    Raises:
        ValueError: As `maxsim` does.
    """
    return _score(_named(queries, "queries"), documents, normalize, binary)


def _score(
    asked: Mapping[str, NDArray[Any]], documents: Documents, normalize: bool, binary: bool
) -> NDArray[np.float32]:
    given = _named(documents, "documents")
    scores = np.zeros((len(asked), len(given)), dtype=np.float32)
    if not asked:
        return scores
    bits = _bits(asked.values()) if binary else None
    tokens = [_tokens(array, name, binary, bits, normalize) for name, array in asked.items()]
    dims = tokens[0].shape[1]
    for name, query in zip(asked, tokens, strict=True):
        _check_dims(query, dims, name)
    every = np.concatenate(tokens)
    starts = np.cumsum([0, *map(len, tokens[:-1])])
    for at, (name, array) in enumerate(given.items()):
        document = _tokens(array, name, binary, bits, normalize)
        _check_dims(document, dims, name)
        scores[:, at] = np.add.reduceat((every @ document.T).max(axis=1), starts)
    return scores


def _named(arrays: Documents, name: str) -> dict[str, NDArray[Any]]:
    """Name each multi-vector for the errors."""
    if isinstance(arrays, np.ndarray):
        if arrays.ndim not in (2, 3):
            raise ValueError(
                f"{name} is an array of shape {arrays.shape}; one multi-vector has the shape (tokens, dims), and a "
                "stack of them (number, tokens, dims)"
            )
        arrays = [arrays] if arrays.ndim == 2 else list(arrays)
    return {f"{name}[{at}]": array for at, array in enumerate(arrays)}


def _bits(queries: Iterable[NDArray[Any]]) -> int | None:
    """Find how many bits of a row are dimensions: as many as a query of numbers has; None where there is none."""
    arrays = map(np.asarray, queries)
    return next((array.shape[1] for array in arrays if array.ndim == 2 and array.dtype != np.uint8), None)


def _tokens(array: NDArray[Any], name: str, binary: bool, bits: int | None, normalize: bool) -> NDArray[np.float32]:
    array = np.asarray(array)
    if array.ndim != 2 or not len(array):
        raise ValueError(
            f"{name} has the shape {array.shape}; a multi-vector is (tokens, dims), with at least one token"
        )
    if array.dtype == np.uint8 and binary:
        tokens = _unpacked(array, name, bits)
    elif array.dtype.kind not in "fi":
        raise ValueError(f"{name} is of dtype {array.dtype}, which cannot be scored: {_REMEDY}")
    else:
        tokens = np.asarray(array, dtype=np.float32)
    if normalize:
        lengths = np.linalg.norm(tokens, axis=1, keepdims=True)
        tokens = np.divide(tokens, lengths, out=np.zeros_like(tokens), where=lengths > 0)
    return tokens


def _unpacked(array: NDArray[Any], name: str, bits: int | None) -> NDArray[np.float32]:
    """Turn packed bits into +1 and -1, the highest bit of a byte first."""
    if bits is not None and array.shape[1] != -(-bits // 8):
        raise ValueError(f"{name} has {array.shape[1]} bytes a token; {bits} packed dimensions have {-(-bits // 8)}")
    return np.unpackbits(array, axis=1, count=bits) * np.float32(2.0) - np.float32(1.0)


def _check_dims(tokens: NDArray[np.float32], dims: int, name: str) -> None:
    if tokens.shape[1] != dims:
        raise ValueError(f"{name} has {tokens.shape[1]} dimensions a token, and the query {dims}")
