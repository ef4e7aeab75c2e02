"""Refuses outputs with NaN or infinity."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import InferenceError, ItemOutput


def require_finite(output: ItemOutput, where: str) -> None:
    """Check every number of an output of `where`, e.g. `items[3]`.

    Raises:
        InferenceError: `NON_FINITE_OUTPUT`, naming `where` and the output at fault.
    """
    for name, values in _arrays(output):
        if not np.isfinite(values).all():
            raise non_finite(name, where)
    for name, numbers in _numbers(output):
        if not all(map(math.isfinite, numbers)):
            raise non_finite(name, where)


def non_finite(name: str, where: str, why: str = "the model returned NaN or infinity") -> InferenceError:
    """Make the error of one item whose output `name` is not finite."""
    return InferenceError(
        "NON_FINITE_OUTPUT",
        f"{where}: {why} in its {name} output; check the item, and the model's compute precision.",
        param=where,
    )


def _arrays(output: ItemOutput) -> Iterator[tuple[str, NDArray[Any]]]:
    if output.dense is not None:
        yield "dense", output.dense
    if output.sparse is not None:
        yield "sparse", output.sparse.values
    if output.multivector is not None:
        yield "multivector", output.multivector


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
