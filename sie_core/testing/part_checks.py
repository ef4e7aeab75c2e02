"""What output dtypes and device probes must do. A check that fails raises AssertionError with the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sie_core.contracts import DeviceProbe, OutputDtype


def each_row_is_cast_alone(dtype: OutputDtype) -> None:
    """A row of a matrix is cast as the row by itself; leading axes stay, the array given is untouched."""
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
    """`cast_sparse` gives as many values as it takes."""
    if dtype.cast_sparse is not None:
        assert dtype.cast_sparse(np.ones(7, dtype=np.float32)).shape == (7,), "cast_sparse changes how many values"
        assert dtype.sparse_label, "sparse_label is empty"


def devices_are_of_its_kind(probe: DeviceProbe) -> None:
    """Every device is of the probe's kind, with an index of its own."""
    devices = probe.devices()
    assert all(device.kind == probe.kind for device in devices), f"a device is not of kind {probe.kind!r}"
    indices = [device.index for device in devices]
    assert len(indices) == len(set(indices)), f"two devices share an index: {indices}"


def memory_adds_up(probe: DeviceProbe) -> None:
    """Memory in use is at least 0 and at most what there is."""
    for device in probe.devices():
        memory = probe.memory(device)
        assert 0 <= memory.used <= memory.total, f"{device} uses {memory.used} of {memory.total} bytes"
        assert memory.total > 0, f"{device} has no memory"


DTYPE_CHECKS: Sequence[Callable[[OutputDtype], None]] = (each_row_is_cast_alone, sparse_values_keep_their_number)
PROBE_CHECKS: Sequence[Callable[[DeviceProbe], None]] = (devices_are_of_its_kind, memory_adds_up)
