"""Keeps NaN and infinity from leaving with a success. It must not know which request an output belongs to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import InferenceError, ItemOutput


def require_finite(output: ItemOutput, item: int) -> None:
    """Check every number of an output.

    Raises:
        InferenceError: `NON_FINITE_OUTPUT`, naming `items[item]` and the output at fault.
    """
    for name, values in _arrays(output):
        if not np.isfinite(values).all():
            raise non_finite(name, item)
    if output.score is not None and not math.isfinite(output.score):
        raise non_finite("score", item)
    if output.entities and not all(math.isfinite(entity.score) for entity in output.entities):
        raise non_finite("entities", item)


def non_finite(name: str, item: int, why: str = "the model returned NaN or infinity") -> InferenceError:
    """Make the error of one item whose output `name` is not finite."""
    return InferenceError(
        "NON_FINITE_OUTPUT",
        f"items[{item}]: {why} in its {name} output; check the item, and the model's compute precision.",
        param=f"items[{item}]",
    )


def _arrays(output: ItemOutput) -> list[tuple[str, NDArray[Any]]]:
    found: list[tuple[str, NDArray[Any]]] = []
    if output.dense is not None:
        found.append(("dense", output.dense))
    if output.sparse is not None:
        found.append(("sparse", output.sparse.values))
    if output.multivector is not None:
        found.append(("multivector", output.multivector))
    return found
