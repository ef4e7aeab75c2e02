"""The numbers of every `output_dtype`, against the wire's golden row and against the definition of each."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from sie_core.postprocess import OUTPUT_DTYPES

CASTS = {dtype.name: dtype for dtype in OUTPUT_DTYPES}
GOLDEN = np.array([0.5, -1, 0.25, 0], dtype=np.float32)
ROWS = arrays.arrays(
    np.float32,
    st.tuples(st.integers(1, 5), st.integers(1, 33)),
    elements=st.floats(-1e6, 1e6, width=32, allow_subnormal=False),
)


@pytest.mark.parametrize(
    ("name", "expected", "kind"),
    [
        ("float32", [0.5, -1, 0.25, 0], np.float32),
        ("float16", [0.5, -1, 0.25, 0], np.float16),
        ("int8", [64, -127, 32, 0], np.int8),
        ("uint8", [255, 0, 212, 170], np.uint8),
        ("binary", [160], np.uint8),
        ("ubinary", [160], np.uint8),
    ],
)
def test_the_golden_row_is_cast_as_the_wire_says(name, expected, kind):
    cast = CASTS[name].cast(GOLDEN)
    assert cast.dtype == kind
    assert cast.tolist() == expected


def test_float32_passes_the_array_through_untouched():
    assert CASTS["float32"].cast(GOLDEN) is GOLDEN


def test_both_binary_names_are_labelled_binary():
    assert (CASTS["binary"].label, CASTS["ubinary"].label) == ("binary", "binary")


def test_int8_rounds_halves_to_even():
    row = np.array([127.0, 0.5, 1.5, -0.5, -1.5], dtype=np.float32)
    assert CASTS["int8"].cast(row).tolist() == [127, 0, 2, 0, -2]


def test_a_zero_row_and_a_constant_row_become_zeros():
    assert CASTS["int8"].cast(np.zeros((2, 3), np.float32)).tolist() == [[0, 0, 0]] * 2
    assert CASTS["uint8"].cast(np.full((2, 3), 7.5, np.float32)).tolist() == [[0, 0, 0]] * 2


def test_a_multivector_without_tokens_is_cast_to_one_without_tokens():
    empty = np.zeros((0, 8), np.float32)
    assert {name: dtype.cast(empty).shape for name, dtype in CASTS.items()} == {
        "float32": (0, 8),
        "float16": (0, 8),
        "int8": (0, 8),
        "uint8": (0, 8),
        "binary": (0, 1),
        "ubinary": (0, 1),
    }


def nearest(queries, documents, by):
    queries, documents = queries.astype(np.float32), documents.astype(np.float32)
    if by == "cosine":
        queries, documents = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (queries, documents))
    return np.argsort(-(queries @ documents.T), axis=1)[:, :10]


@pytest.mark.parametrize("dims", [128, 384, 1024])
def test_the_ten_nearest_by_cosine_of_int8_are_those_of_float32(dims):
    """Vectors as models give them: of unit length, in clusters, with a few dimensions much larger than the others."""
    rng = np.random.default_rng(0)
    large = np.where(rng.random(dims) < 0.02, 8.0, 1.0)
    topics = rng.standard_normal((40, dims))
    rows = (topics[rng.integers(0, 40, 1500)] + rng.standard_normal((1500, dims))) * large
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    queries, documents = rows[:100], rows[100:]
    wanted, cast = nearest(queries, documents, "dot"), CASTS["int8"].cast

    def overlap(by):
        found = nearest(cast(queries), cast(documents), by)
        return np.mean([len({*ours} & {*theirs}) / 10 for ours, theirs in zip(found, wanted, strict=True)])

    assert overlap("cosine") > 0.9
    assert overlap("dot") < 0.8, "the lengths do not differ: a comparison that is not by cosine would pass unseen"


@given(ROWS)
def test_each_row_is_quantised_as_if_it_were_alone(rows):
    for dtype in OUTPUT_DTYPES:
        together = dtype.cast(rows)
        assert np.array_equal(together, np.stack([dtype.cast(row) for row in rows]), equal_nan=True)


@given(ROWS)
def test_int8_keeps_the_largest_magnitude_at_127_and_every_value_within_half_a_step(rows):
    peak = np.abs(rows.astype(np.float64)).max(axis=-1, keepdims=True)
    cast = CASTS["int8"].cast(rows).astype(np.float64)
    assert np.all(np.abs(cast) <= 127)
    assert np.all(np.abs(cast - np.where(peak > 0, rows / np.where(peak > 0, peak, 1) * 127, 0)) <= 0.5 + 1e-4)


@given(ROWS)
def test_binary_holds_one_bit_a_dimension(rows):
    bits = np.unpackbits(CASTS["binary"].cast(rows), axis=-1)
    assert bits.shape[-1] == -(-rows.shape[-1] // 8) * 8
    assert np.array_equal(bits[:, : rows.shape[-1]], rows > 0)
    assert not bits[:, rows.shape[-1] :].any()
