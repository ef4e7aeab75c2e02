"""Checks an adapter's outputs: against its own facts in shape, width and dtype, and for NaN and infinity."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import InferenceError, ItemOutput, OutputType, SparseVector

PART = 1 << 16
"""Numbers checked at a time."""


def require_form(output: ItemOutput, dims: Mapping[OutputType, int], where: str, whose: str = "the adapter's") -> None:
    """Check the vectors and the score of an output of `where`, e.g. `items[3]`.

    Args:
        output: The output of an adapter or a converter.
        dims: Expected dimensions of each output; an unnamed output may have any number.
        where: Name of its item, for messages.
        whose: Its origin, for messages.

    Raises:
        ValueError: One has another shape, width or dtype; the text is for the log.
    """
    if output.dense is not None:
        _array(f"{whose} dense output of {where}", output.dense, 1, dims.get("dense"))
    if output.multivector is not None:
        _array(f"{whose} multivector output of {where}", output.multivector, 2, dims.get("multivector"))
    if output.sparse is not None:
        _sparse(f"{whose} sparse output of {where}", output.sparse, dims.get("sparse"))
    if output.score is not None and not isinstance(output.score, float | int | np.floating):
        raise ValueError(f"{whose} score of {where} is of type {type(output.score).__name__}, not one number")


def require_finite(output: ItemOutput, where: str) -> None:
    """Check every number of an output of `where`, e.g. `items[3]`.

    Raises:
        InferenceError: `NON_FINITE_OUTPUT`, naming `where` and the output at fault.
    """
    sparse = None if output.sparse is None else output.sparse.values
    for name, values in (("dense", output.dense), ("sparse", sparse), ("multivector", output.multivector)):
        if values is not None and not all_finite(values):
            raise non_finite(name, where)
    for name, numbers in _numbers(output):
        if not all(map(math.isfinite, numbers)):
            raise non_finite(name, where)


def all_finite(values: NDArray[Any]) -> bool:
    """Whether no number is NaN or infinite; many are checked in parts, which leaves the cache to others."""
    if values.size <= PART:
        return bool(np.isfinite(values).all())
    rows = max(1, PART * len(values) // values.size)
    return all(np.isfinite(values[start : start + rows]).all() for start in range(0, len(values), rows))


def non_finite(name: str, where: str, why: str = "the model returned NaN or infinity") -> InferenceError:
    """Make the error of one item whose output `name` is not finite."""
    return InferenceError(
        "NON_FINITE_OUTPUT",
        f"{where}: {why} in its {name} output; check the item, and the model's compute precision.",
        param=where,
    )


def _array(what: str, array: object, axes: int, width: int | None) -> None:
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{what} is of type {type(array).__name__}, not an array")
    wide = "dims" if width is None else width
    if array.ndim != axes or (width is not None and array.shape[-1] != width):
        should = f"({wide},)" if axes == 1 else f"(tokens, {wide})"
        raise ValueError(f"{what} has shape {array.shape}, not {should}")
    if array.dtype != np.float32:
        raise ValueError(f"{what} is {array.dtype}, not float32")


def _sparse(what: str, sparse: object, width: int | None) -> None:
    if not isinstance(sparse, SparseVector):
        raise ValueError(f"{what} is of type {type(sparse).__name__}, not a SparseVector")
    indices = sparse.indices
    _array(what, sparse.values, 1, None)
    if not isinstance(indices, np.ndarray) or indices.dtype.kind not in "iu" or indices.shape != sparse.values.shape:
        raise ValueError(f"{what} has not one whole number as the index of each value")
    if sparse.dims is not None and width is not None and sparse.dims != width:
        raise ValueError(f"{what} has {sparse.dims} dims, not {width}")
    most = width if sparse.dims is None else sparse.dims
    if indices.size and (indices.min() < 0 or (most is not None and indices.max() >= most)):
        raise ValueError(f"{what} has indices beyond its {most} dims")


def _numbers(output: ItemOutput) -> Iterator[tuple[str, Iterator[float]]]:
    if output.score is not None:
        yield "score", iter((output.score,))
    if output.entities:
        yield "entities", (each.score for each in output.entities)
    if output.relations:
        yield "relations", (each.score for each in output.relations)
    if output.classifications:
        yield "classifications", (each.score for each in output.classifications)
    if output.objects:
        yield "objects", (number for each in output.objects for number in (each.score, *each.bbox))
    if output.data:
        yield "data", _floats(output.data)


def _floats(value: object) -> Iterator[float]:
    if isinstance(value, float | np.floating):
        yield float(value)
    elif isinstance(value, Mapping):
        for child in value.values():
            yield from _floats(child)
    elif isinstance(value, list | tuple):
        for child in value:
            yield from _floats(child)
