"""The codec against whatever Hypothesis thinks of: equal round trips, and only `WireError` for garbage."""

from __future__ import annotations

import contextlib

import msgpack
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sie_sdk import wire

DTYPES = ["<f2", "<f4", "<f8", ">f2", ">f4", ">f8", "<i2", ">i4", "<i8", "<u2", "<u4", ">u8", "|b1", "|i1", "|u1"]
ARRAYS = st.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, max_dims=8, min_side=0, max_side=3))
)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text()
TREES = st.recursive(
    SCALARS | st.binary() | ARRAYS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def same(left: object, right: object) -> bool:
    if isinstance(left, np.ndarray):
        return isinstance(right, np.ndarray) and left.dtype == right.dtype and left.tobytes() == right.tobytes()
    if isinstance(left, dict):
        return isinstance(right, dict) and left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


def only_wire_errors(data: bytes) -> None:
    with contextlib.suppress(wire.WireError):
        wire.unpack(data)


@given(TREES)
@settings(deadline=None)
def test_every_tree_comes_back_equal(tree):
    assert same(tree, wire.unpack(wire.pack(tree)))


@given(st.binary(max_size=200))
@settings(max_examples=500, deadline=None)
def test_random_bytes_raise_wire_errors_only(data):
    only_wire_errors(data)


@given(TREES, st.data())
@settings(deadline=None)
def test_a_message_with_flipped_bytes_raises_wire_errors_only(tree, data):
    packed = bytearray(wire.pack(tree))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    only_wire_errors(bytes(packed))


@given(
    st.dictionaries(
        st.sampled_from([b"nd", b"type", b"kind", b"shape", b"data", b"complex"]),
        SCALARS | st.binary(max_size=16) | st.lists(st.integers(-2, 2**40), max_size=9) | st.sampled_from(DTYPES),
    )
)
@settings(max_examples=500, deadline=None)
def test_a_map_that_looks_like_an_array_raises_wire_errors_only(fields):
    only_wire_errors(msgpack.packb(fields))


@given(st.lists(st.dictionaries(st.text(max_size=3), SCALARS, max_size=3), max_size=40), SCALARS)
@settings(deadline=None)
def test_spliced_items_equal_packed_ones(items, head):
    spliced = wire.pack_with_items({"head": head}, [wire.pack(item) for item in items])
    assert spliced == wire.pack({"head": head, "items": items})
