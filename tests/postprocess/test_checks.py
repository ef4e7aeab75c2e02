"""Outputs are held to the adapter's facts: shape, width, dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sie_core.contracts import ItemOutput, SparseVector
from sie_core.postprocess import require_form
from sie_core.postprocess.checks import PART, all_finite

DIMS: Any = {"dense": 4, "sparse": 10, "multivector": 3}


def sparse(indices: Any, values: Any = None, dims: int | None = 10) -> ItemOutput:
    values = np.ones(len(indices), np.float32) if values is None else values
    return ItemOutput(sparse=SparseVector(np.array(indices, np.int32), values, dims))


RIGHT = [
    ItemOutput(dense=np.ones(4, np.float32)),
    ItemOutput(multivector=np.ones((7, 3), np.float32)),
    ItemOutput(multivector=np.ones((0, 3), np.float32)),
    sparse([0, 3, 9]),
    sparse([]),
    sparse([9], dims=None),
    ItemOutput(score=0.5),
    ItemOutput(score=np.float32(0.5)),  # type: ignore[arg-type]
]
WRONG = [
    (
        ItemOutput(dense=np.ones(5, np.float32)),
        r"the adapter.s dense output of items\[1\] has shape \(5,\), not \(4,\)",
    ),
    (ItemOutput(dense=np.ones((1, 4), np.float32)), r"has shape \(1, 4\), not \(4,\)"),
    (ItemOutput(dense=np.ones(4, np.float16)), "float16, not float32"),
    (ItemOutput(multivector=np.ones(3, np.float32)), r"has shape \(3,\), not \(tokens, 3\)"),
    (ItemOutput(multivector=np.ones((2, 4), np.float32)), r"has shape \(2, 4\), not \(tokens, 3\)"),
    (sparse([10]), "indices beyond its 10 dims"),
    (sparse([-1]), "indices beyond its 10 dims"),
    (sparse([1], dims=11), "11 dims, not 10"),
    (sparse([1, 2], np.ones(3, np.float32)), "index of each value"),
    (sparse([1], np.ones(1, np.float64)), "float64, not float32"),
    (ItemOutput(sparse={1: 0.5}), "not a SparseVector"),  # type: ignore[arg-type]
    (ItemOutput(score=np.ones(1)), "adapter.s score of items.1. is of type ndarray, not one number"),  # type: ignore[arg-type]
    (ItemOutput(score="0.5"), "of type str"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("output", RIGHT)
def test_what_the_facts_say_passes(output: ItemOutput) -> None:
    require_form(output, DIMS, "items[1]")


@pytest.mark.parametrize(("output", "told"), WRONG)
def test_what_they_do_not_say_is_named(output: ItemOutput, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        require_form(output, DIMS, "items[1]")


def test_dims_that_nobody_states_may_be_any() -> None:
    require_form(ItemOutput(dense=np.ones(5, np.float32)), {}, "items[0]")


@pytest.mark.parametrize("shape", [(5,), (PART - 1,), (PART + 1,), (3 * PART + 7,), (PART // 8 + 3, 24), (2, 2 * PART)])
def test_one_number_that_is_none_is_found_wherever_it_stands(shape):
    values = np.ones(shape, np.float32)
    assert all_finite(values)
    for place in {0, values.size // 2, values.size - 1}:
        values.flat[place] = np.nan
        assert not all_finite(values)
        values.flat[place] = 1.0
