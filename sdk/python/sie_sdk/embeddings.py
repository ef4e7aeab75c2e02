"""Taking the vectors out of results, with an error that says what is there instead.

It knows the shape of a result and nothing of clients.
"""

from __future__ import annotations

from typing import Any, Literal, overload

from numpy.typing import NDArray

from sie_sdk.types import EncodeResult, SparseEmbedding


@overload
def dense_embedding(result: EncodeResult, *, strict: Literal[True] = True) -> NDArray[Any]: ...


@overload
def dense_embedding(result: EncodeResult, *, strict: bool) -> NDArray[Any] | None: ...


def dense_embedding(result: EncodeResult, *, strict: bool = True) -> NDArray[Any] | None:
    """Return a result's dense vector, shape (dims,); None where it has none and `strict` is off.

    Raises:
        ValueError: It has none.
    """
    if "dense" not in result and strict:
        raise _without("dense", result)
    return result.get("dense")


@overload
def sparse_embedding(result: EncodeResult, *, strict: Literal[True] = True) -> SparseEmbedding: ...


@overload
def sparse_embedding(result: EncodeResult, *, strict: bool) -> SparseEmbedding | None: ...


def sparse_embedding(result: EncodeResult, *, strict: bool = True) -> SparseEmbedding | None:
    """Return a result's sparse vector: ascending `indices` and their `values`; None as `dense_embedding` does.

    Raises:
        ValueError: It has none.
    """
    if "sparse" not in result and strict:
        raise _without("sparse", result)
    return result.get("sparse")


def sparse_embedding_dict(result: EncodeResult) -> dict[int, float]:
    """Return a result's sparse vector as plain weights by index, as vector databases take it.

    Raises:
        ValueError: It has none.
    """
    sparse = sparse_embedding(result)
    return dict(zip(sparse["indices"].tolist(), map(float, sparse["values"].tolist()), strict=True))


@overload
def multivector_embedding(result: EncodeResult, *, strict: Literal[True] = True) -> NDArray[Any]: ...


@overload
def multivector_embedding(result: EncodeResult, *, strict: bool) -> NDArray[Any] | None: ...


def multivector_embedding(result: EncodeResult, *, strict: bool = True) -> NDArray[Any] | None:
    """Return a result's multi-vector, shape (tokens, token_dims); None as `dense_embedding` does.

    Raises:
        ValueError: It has none.
    """
    if "multivector" not in result and strict:
        raise _without("multivector", result)
    return result.get("multivector")


def _without(output: str, result: EncodeResult) -> ValueError:
    there = ", ".join(sorted(result)) or "nothing"
    return ValueError(f"the result has no {output} vector; it has {there}. `output_types` asks for outputs.")
