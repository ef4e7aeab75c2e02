"""SMVE against plain loops over its definition."""

import numpy as np
import pytest

from sie_core.contracts import ItemOutput
from sie_core.postprocess.derived import smve
from sie_core.postprocess.derived.smve import Smve, SmveParameters

TOKENS = np.random.default_rng(2).standard_normal((11, 6)).astype(np.float32)


def in_loops(parameters, tokens, is_query):
    """The wire's words, one token at a time: index to value."""
    added = {}
    for repetition in range(parameters.num_repetitions):
        rng = np.random.default_rng(parameters.seed + repetition)
        anchors = rng.standard_normal((tokens.shape[1], parameters.width), dtype=np.float32)
        anchors /= np.linalg.norm(anchors, axis=0)
        for token in tokens:
            products = token @ anchors
            for column in np.argsort(-products)[: parameters.k]:
                added.setdefault(repetition * parameters.width + int(column), []).append(float(products[column]))
    return {index: sum(parts) if is_query else sum(parts) / len(parts) for index, parts in sorted(added.items())}


@pytest.mark.parametrize("is_query", [True, False])
@pytest.mark.parametrize("parameters", [SmveParameters(64, 5), SmveParameters(32, 4, num_repetitions=3, seed=9)])
def test_a_vector_is_what_plain_loops_make_of_the_definition(parameters, is_query):
    vector = Smve(parameters, 6).encode(TOKENS, is_query=is_query)
    expected = in_loops(parameters, TOKENS, is_query)
    assert (vector.indices.dtype, vector.values.dtype) == (np.int32, np.float32)
    assert vector.indices.tolist() == list(expected)
    assert vector.values == pytest.approx(list(expected.values()), abs=1e-5)
    assert vector.dims == parameters.num_repetitions * parameters.width


def test_the_input_type_says_which_side_it_is():
    encoder = Smve(SmveParameters(16, 4), 6)
    converted = {
        kind: encoder.convert(ItemOutput(multivector=TOKENS), kind).sparse for kind in ("query", "document", None)
    }
    assert converted["query"].values.sum() > converted["document"].values.sum()
    assert np.array_equal(converted[None].values, converted["document"].values)


def test_many_tokens_are_taken_in_parts_to_the_same_vector(monkeypatch):
    encoder = Smve(SmveParameters(64, 5), 6)
    whole = encoder.encode(TOKENS, is_query=True)
    monkeypatch.setattr(smve, "PRODUCTS_AT_ONCE", 3 * 64)
    parts = encoder.encode(TOKENS, is_query=True)
    assert np.array_equal(whole.indices, parts.indices)
    assert np.allclose(whole.values, parts.values, atol=1e-5)


def test_only_the_largest_entries_are_kept_in_ascending_order():
    every = Smve(SmveParameters(64, 5), 6).encode(TOKENS, is_query=True)
    kept = Smve(SmveParameters(64, 5, max_nonzeros=7), 6).encode(TOKENS, is_query=True)
    largest = sorted(np.argsort(-np.abs(every.values))[:7])
    assert kept.indices.tolist() == every.indices[largest].tolist()
    assert kept.values.tolist() == every.values[largest].tolist()


def test_tokens_of_zeros_and_no_tokens_have_no_entries():
    encoder = Smve(SmveParameters(16, 4), 6)
    for tokens in (np.zeros((0, 6)), np.zeros((3, 6))):
        assert encoder.encode(tokens, is_query=False).indices.tolist() == []


@pytest.mark.parametrize(
    ("parameters", "told"),
    [(SmveParameters(8, 9), "k 9 is above width 8"), (SmveParameters(2**24, 8), r"width 16777216 x 128.*512 MiB")],
)
def test_parameters_that_cannot_be_served_are_refused_by_name(parameters, told):
    with pytest.raises(ValueError, match=told):
        Smve(parameters, 128)
