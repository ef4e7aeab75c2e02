"""The item map of the wire, and what is refused before it is made."""

import numpy as np
import pytest
from sie_sdk.wire import unpack

from sie_core.contracts import Entity, InferenceError, ItemOutput, SparseVector, Truncation
from sie_core.postprocess import OUTPUT_DTYPES, encode_item, require_finite

DTYPES = {dtype.name: dtype for dtype in OUTPUT_DTYPES}
DENSE = np.linspace(-1, 1, 12, dtype=np.float32)
SPARSE = SparseVector(np.array([1, 5], np.int32), np.array([0.5, 2.0], np.float32), dims=100)
TOKENS = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 12)


def encoded(output, dtype="float32", **more):
    return unpack(encode_item(output, DTYPES[dtype], 0, **more))


def test_a_dense_vector_travels_with_its_size_and_dtype():
    item = encoded(ItemOutput(dense=DENSE))
    assert set(item) == {"dense"}
    assert (item["dense"]["dims"], item["dense"]["dtype"]) == (12, "float32")
    assert item["dense"]["values"].dtype == np.float32
    assert np.array_equal(item["dense"]["values"], DENSE)


def test_packed_bits_are_labelled_binary_and_count_dimensions():
    item = encoded(ItemOutput(dense=DENSE, multivector=TOKENS), "ubinary")
    assert (item["dense"]["dims"], item["dense"]["dtype"], item["dense"]["values"].shape) == (12, "binary", (2,))
    tokens = item["multivector"]
    assert (tokens["token_dims"], tokens["num_tokens"], tokens["dtype"]) == (12, 2, "binary")
    assert tokens["values"].shape == (2, 2)


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint8", "binary"])
def test_sparse_values_stay_float32(dtype):
    item = encoded(ItemOutput(sparse=SPARSE), dtype)["sparse"]
    assert (item["dims"], item["dtype"], item["values"].dtype) == (100, "float32", np.float32)
    assert (item["indices"].dtype, item["indices"].tolist()) == (np.int32, [1, 5])


def test_only_float16_changes_sparse_values():
    item = encoded(ItemOutput(sparse=SPARSE), "float16")["sparse"]
    assert (item["dtype"], item["values"].dtype, item["indices"].dtype) == ("float16", np.float16, np.int32)


def test_the_id_and_the_truncation_are_there_only_where_given():
    plain = encoded(ItemOutput(dense=DENSE))
    assert "id" not in plain
    assert "truncated" not in plain
    full = encoded(ItemOutput(dense=DENSE), item_id="", truncated=Truncation(tokens=900, kept=512))
    assert full["id"] == ""
    assert full["truncated"] == {"tokens": 900, "kept": 512}


def test_a_vector_of_another_precision_leaves_as_the_float32_it_is_labelled():
    item = encoded(ItemOutput(dense=DENSE.astype(np.float64)))
    assert item["dense"]["values"].dtype == np.float32


def test_a_value_beyond_float16_is_refused_rather_than_sent_as_infinity():
    with pytest.raises(InferenceError) as caught:
        encode_item(ItemOutput(dense=np.array([1e6], np.float32)), DTYPES["float16"], 4)
    assert (caught.value.code, caught.value.param) == ("NON_FINITE_OUTPUT", "items[4]")
    assert "float16" in caught.value.message


BAD = np.array([0.0, np.nan, 1.0], np.float32)


@pytest.mark.parametrize(
    ("output", "name"),
    [
        (ItemOutput(dense=BAD), "dense"),
        (ItemOutput(dense=np.array([-np.inf], np.float32)), "dense"),
        (ItemOutput(dense=DENSE, sparse=SparseVector(np.arange(3, dtype=np.int32), BAD)), "sparse"),
        (ItemOutput(multivector=np.stack([DENSE, DENSE * np.float32(np.inf)])), "multivector"),
        (ItemOutput(score=float("nan")), "score"),
        (ItemOutput(entities=(Entity("a", "b", float("inf"), start=0, end=1),)), "entities"),
    ],
)
def test_a_number_that_is_not_finite_names_its_item_and_its_output(output, name):
    with np.errstate(invalid="ignore"), pytest.raises(InferenceError) as caught:
        require_finite(output, "items[3]")
    assert (caught.value.code, caught.value.param) == ("NON_FINITE_OUTPUT", "items[3]")
    assert "items[3]" in caught.value.message
    assert name in caught.value.message


def test_finite_outputs_pass():
    require_finite(ItemOutput(dense=DENSE, sparse=SPARSE, multivector=TOKENS, score=0.5), "items[0]")
