"""Late interaction against a plain loop, in every dtype the server returns."""

import numpy as np
import pytest
from sie_sdk.scoring import maxsim, maxsim_batch

from sie_core.postprocess import OUTPUT_DTYPES

CASTS = {dtype.name: dtype.cast for dtype in OUTPUT_DTYPES}
RNG = np.random.default_rng(7)


def multivector(tokens, dims=24):
    rows = RNG.standard_normal((tokens, dims)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


QUERIES = [multivector(tokens) for tokens in (4, 1, 9)]
DOCUMENTS = [multivector(tokens) for tokens in (1, 30, 7, 12)]


def in_a_loop(query, document):
    """The definition, in float64."""
    score = 0.0
    for token in query.astype(np.float64):
        score += max(sum(a * b for a, b in zip(token, other, strict=True)) for other in document.astype(np.float64))
    return score


def test_a_score_is_the_sum_of_each_query_tokens_best_match():
    expected = [in_a_loop(QUERIES[0], document) for document in DOCUMENTS]
    scores = maxsim(QUERIES[0], DOCUMENTS)
    assert all(type(score) is float for score in scores)
    assert scores == pytest.approx(expected, abs=1e-5)


def test_many_queries_are_scored_as_each_is_alone():
    scores = maxsim_batch(QUERIES, DOCUMENTS)
    assert (scores.dtype, scores.shape) == (np.float32, (3, 4))
    assert np.allclose(scores, [maxsim(query, DOCUMENTS) for query in QUERIES], atol=1e-6)
    assert np.allclose(scores, [[in_a_loop(q, d) for d in DOCUMENTS] for q in QUERIES], atol=1e-5)


def test_one_array_is_one_document_and_a_stack_is_many():
    stack = np.stack([multivector(6), multivector(6)])
    assert maxsim(QUERIES[0], DOCUMENTS[1]) == maxsim(QUERIES[0], [DOCUMENTS[1]])
    assert maxsim(QUERIES[0], stack) == maxsim(QUERIES[0], list(stack))
    assert maxsim_batch(QUERIES[1], stack).shape == (1, 2)


def test_nothing_to_score_gives_no_scores():
    assert maxsim(QUERIES[0], []) == []
    assert maxsim_batch([], DOCUMENTS).shape == (0, 4)


def test_negative_matches_count_too():
    assert maxsim(np.array([[1.0, 0.0]]), np.array([[-0.5, 0.0], [-1.0, 0.0]])) == [-0.5]


def test_float16_is_added_up_in_float32():
    query, documents = QUERIES[0].astype(np.float16), [document.astype(np.float16) for document in DOCUMENTS]
    assert maxsim(query, documents) == pytest.approx([in_a_loop(query, document) for document in documents], abs=1e-5)
    ones = np.ones((3000, 1), np.float16)
    assert maxsim(ones, ones) == [3000.0]


def test_int8_is_scored_as_it_is_and_at_unit_length_comes_near_the_original():
    query, documents = CASTS["int8"](QUERIES[0]), [CASTS["int8"](document) for document in DOCUMENTS]
    assert maxsim(query, documents) == pytest.approx([in_a_loop(query, document) for document in documents], rel=1e-6)
    assert maxsim(query, documents, normalize=True) == pytest.approx(maxsim(QUERIES[0], DOCUMENTS), abs=0.05)


def test_a_token_of_zeros_has_no_length_and_stays():
    assert maxsim(np.zeros((1, 4)), np.eye(4), normalize=True) == [0.0]


@pytest.mark.parametrize("dims", [24, 21])
def test_packed_bits_count_plus_and_minus_one(dims):
    query, document = multivector(5, dims), multivector(8, dims)
    signs = np.where(document > 0, 1.0, -1.0)
    packed = CASTS["binary"](document)
    assert maxsim(query, packed, binary=True) == pytest.approx([in_a_loop(query, signs)], abs=1e-5)


def test_bits_of_both_sides_are_scored_by_the_bits_they_share():
    query, document = CASTS["ubinary"](multivector(5)), CASTS["ubinary"](multivector(8))
    pairs = np.unpackbits(query[:, None] ^ document[None], axis=2).sum(axis=2)
    assert maxsim(query, document, binary=True) == [float((24 - 2.0 * pairs).max(axis=1).sum())]


@pytest.mark.parametrize(
    ("query", "documents", "binary", "told"),
    [
        (QUERIES[0][0], DOCUMENTS, False, r"query has the shape \(24,\)"),
        (QUERIES[0][:0], DOCUMENTS, False, r"query has the shape \(0, 24\).*at least one token"),
        (QUERIES[0], DOCUMENTS[0][0], False, r"documents is an array of shape \(24,\)"),
        (QUERIES[0], [DOCUMENTS[0], DOCUMENTS[1][:0]], False, r"documents\[1\] has the shape \(0, 24\)"),
        (QUERIES[0], [DOCUMENTS[0], multivector(3, 23)], False, r"documents\[1\] has 23 dimensions a token.*24"),
        (QUERIES[0], CASTS["uint8"](DOCUMENTS[0]), False, r"documents\[0\] is of dtype uint8.*float16 or int8.*binary"),
        (QUERIES[0], CASTS["uint8"](DOCUMENTS[0]), True, r"documents\[0\] has 24 bytes a token; 24.*have 3"),
        (QUERIES[0] > 0, DOCUMENTS, False, r"query is of dtype bool"),
        (QUERIES[0].astype(str), DOCUMENTS, False, r"query is of dtype <U"),
    ],
)
def test_what_cannot_be_scored_is_refused_by_name(query, documents, binary, told):
    with pytest.raises(ValueError, match=told):
        maxsim(query, documents, binary=binary)


def test_queries_of_different_dimensions_are_refused():
    with pytest.raises(ValueError, match=r"queries\[1\] has 8 dimensions"):
        maxsim_batch([QUERIES[0], multivector(2, 8)], DOCUMENTS)
