"""The checks of postprocessors, output dtypes and device probes.

A check that fails raises AssertionError with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, get_args

import numpy as np

from sie_core.contracts import (
    DeviceProbe,
    InputType,
    ItemOutput,
    OutputDtype,
    OutputType,
    Postprocessor,
    SparseVector,
)

DIMS = 32
"""Dimensions of the vectors that postprocessors are checked with."""


def each_row_is_cast_alone(dtype: OutputDtype) -> None:
    """A row of a matrix is cast like the row alone; leading axes stay, the given array is not modified."""
    rows = np.random.default_rng(0).standard_normal((5, 32)).astype(np.float32)
    rows[2] = 0.0
    before = rows.copy()
    cast = dtype.cast(rows)
    assert cast.shape[:-1] == (5,), f"cast gives shape {cast.shape} for (5, 32)"
    for position, row in enumerate(rows):
        assert np.array_equal(cast[position], dtype.cast(row)), f"row {position} is cast otherwise in company"
    assert np.array_equal(rows, before), "cast changed the array it was given"
    assert dtype.label, "label is empty"


def sparse_values_keep_their_number(dtype: OutputDtype) -> None:
    """`cast_sparse` gives as many values as it gets."""
    if dtype.cast_sparse is not None:
        assert dtype.cast_sparse(np.ones(7, dtype=np.float32)).shape == (7,), "cast_sparse changes how many values"
        assert dtype.sparse_label, "sparse_label is empty"


def it_makes_what_it_says(postprocessor: Postprocessor) -> None:
    """Without parameters it makes finite float32 of its stated dims, for every input type and the same each time."""
    converter = postprocessor.create({}, DIMS)
    for input_type in (None, *get_args(InputType)):
        made, again = (_made(postprocessor, converter.convert(_output(postprocessor.source), input_type)) for _ in "12")
        dims = made.dims if isinstance(made, SparseVector) else made.shape[-1]
        assert dims == converter.dims, f"{postprocessor.target} has {dims} dimensions, and dims says {converter.dims}"
        values, others = (each.values if isinstance(each, SparseVector) else each for each in (made, again))
        assert values.dtype == np.float32, f"{postprocessor.target} is {values.dtype}, not float32"
        assert np.isfinite(values).all(), f"{postprocessor.target} holds NaN or infinity"
        assert np.array_equal(values, others), "equal outputs are made into different ones"


def it_leaves_its_source_alone(postprocessor: Postprocessor) -> None:
    """The given output is not modified: it may be returned too."""
    given = _output(postprocessor.source)
    before = deepcopy(given)
    postprocessor.create({}, DIMS).convert(given, "query")
    for name in get_args(OutputType):
        old, new = (getattr(each, name) for each in (before, given))
        old, new = (each.values if isinstance(each, SparseVector) else each for each in (old, new))
        assert np.array_equal(old, new), f"convert changed the {name} output it was given"


def _made(postprocessor: Postprocessor, output: ItemOutput) -> Any:
    made = getattr(output, postprocessor.target)
    assert made is not None, f"convert fills no {postprocessor.target} output"
    return made


def _output(kind: OutputType) -> ItemOutput:
    """Make an output of a kind with numbers in it."""
    rows = np.random.default_rng(0).standard_normal((5, DIMS)).astype(np.float32)
    if kind == "dense":
        return ItemOutput(dense=rows[0])
    if kind == "multivector":
        return ItemOutput(multivector=rows)
    return ItemOutput(sparse=SparseVector(np.arange(5, dtype=np.int32), rows[0, :5], DIMS))


def devices_are_of_its_kind(probe: DeviceProbe) -> None:
    """Every device is of the probe's kind, with its own index."""
    devices = probe.devices()
    assert all(device.kind == probe.kind for device in devices), f"a device is not of kind {probe.kind!r}"
    indices = [device.index for device in devices]
    assert len(indices) == len(set(indices)), f"two devices share an index: {indices}"


def memory_adds_up(probe: DeviceProbe) -> None:
    """Memory in use is between 0 and the total."""
    for device in probe.devices():
        memory = probe.memory(device)
        assert 0 <= memory.used <= memory.total, f"{device} uses {memory.used} of {memory.total} bytes"
        assert memory.total > 0, f"{device} has no memory"


POSTPROCESSOR_CHECKS: Sequence[Callable[[Postprocessor], None]] = (it_makes_what_it_says, it_leaves_its_source_alone)
DTYPE_CHECKS: Sequence[Callable[[OutputDtype], None]] = (each_row_is_cast_alone, sparse_values_keep_their_number)
PROBE_CHECKS: Sequence[Callable[[DeviceProbe], None]] = (devices_are_of_its_kind, memory_adds_up)
