"""Scores of vectors are what the definition says, worked out by loops."""

import numpy as np
import pytest

from sie_core.contracts import ItemOutput, SparseVector
from sie_core.postprocess import similarity

RANDOM = np.random.default_rng(5)


def sparse(**weights):
    indices = sorted(int(name[1:]) for name in weights)
    values = np.array([weights[f"i{index}"] for index in indices], np.float32)
    return ItemOutput(sparse=SparseVector(np.array(indices, np.int32), values, 100))


def tokens(count):
    return RANDOM.standard_normal((count, 6), dtype=np.float32)


def test_multivectors_are_compared_by_the_best_match_of_each_query_token():
    query, document = tokens(4), tokens(7)
    expected = sum(max(float(np.dot(q, d)) for d in document) for q in query)
    got = similarity(ItemOutput(multivector=query), ItemOutput(multivector=document), "multivector")
    assert got == pytest.approx(expected, rel=1e-5)
    other = similarity(ItemOutput(multivector=document), ItemOutput(multivector=query), "multivector")
    assert abs(got - other) > 0.1, "the sum is over the query's tokens"


@pytest.mark.parametrize(("query", "document"), [(0, 3), (3, 0), (0, 0)])
def test_a_text_without_tokens_matches_nothing(query, document):
    got = similarity(ItemOutput(multivector=tokens(query)), ItemOutput(multivector=tokens(document)), "multivector")
    assert got == 0.0


COMPARED = [
    (None, 2.0),
    ("dot", 2.0),
    ("cosine", 2 / np.sqrt(14 * 17.25)),
    ("euclidean", -np.sqrt(9 + 2.25 + 16)),
    ("manhattan", -8.5),
]


@pytest.mark.parametrize(("how", "expected"), COMPARED)
def test_dense_vectors_are_compared_as_the_model_says(how, expected):
    query, document = np.array([1, 2, -3], np.float32), np.array([4, 0.5, 1], np.float32)
    got = similarity(ItemOutput(dense=query), ItemOutput(dense=document), "dense", how)
    assert got == pytest.approx(expected)


@pytest.mark.parametrize(("how", "expected"), COMPARED)
def test_sparse_vectors_are_compared_as_dense_ones_are(how, expected):
    got = similarity(sparse(i1=1, i4=2, i9=-3), sparse(i1=4, i4=0.5, i9=1), "sparse", how)
    assert got == pytest.approx(expected)
    apart = similarity(sparse(i1=3.0), sparse(i2=4.0), "sparse", how)
    assert apart == pytest.approx({"euclidean": -5.0, "manhattan": -7.0}.get(how, 0.0))


def test_the_cosine_with_nothing_is_zero():
    zero, some = ItemOutput(dense=np.zeros(3, np.float32)), ItemOutput(dense=np.ones(3, np.float32))
    assert similarity(zero, some, "dense", "cosine") == 0.0
    assert similarity(sparse(), sparse(i1=1.0), "sparse", "cosine") == 0.0


def test_the_mean_of_the_best_matches_is_their_sum_over_the_query_tokens():
    query, document = ItemOutput(multivector=tokens(4)), ItemOutput(multivector=tokens(7))
    whole = similarity(query, document, "multivector", "maxsim")
    assert similarity(query, document, "multivector", "meanmaxsim") == pytest.approx(whole / 4)


@pytest.mark.parametrize(
    ("document", "expected"),
    [(sparse(i1=2.0, i5=1.0, i9=3.0), 0.5 * 2 + 2 * 3), (sparse(i0=1.0, i2=1.0), 0.0), (sparse(), 0.0)],
)
def test_sparse_vectors_are_compared_where_both_have_weights(document, expected):
    assert similarity(sparse(i1=0.5, i4=7.0, i9=2.0), document, "sparse") == pytest.approx(expected)


@pytest.mark.parametrize("output", ["dense", "sparse", "multivector"])
def test_an_output_that_is_not_there_is_an_error_that_names_it(output):
    with pytest.raises(ValueError, match=output):
        similarity(ItemOutput(), ItemOutput(), output)
