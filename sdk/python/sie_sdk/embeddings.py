"""Taking the vectors out of results, with an error that says what is there instead.

It knows the shape of a result and nothing of clients.
"""

from __future__ import annotations

from typing import Any, Literal, overload

from numpy.typing import NDArray

from sie_sdk.types import EncodeResult


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
        raise ValueError(f"the result has no dense vector; it has {', '.join(sorted(result)) or 'nothing'}")
    return result.get("dense")
