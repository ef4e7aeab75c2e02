"""MUVERA against the wire's golden vectors, against plain loops, and against the promises of its paper."""

from itertools import product

import numpy as np
import pytest

from sie_core.contracts import ItemOutput
from sie_core.postprocess.derived import muvera
from sie_core.postprocess.derived.muvera import Muvera, MuveraParameters

GOLDEN_TOKENS = np.arange(12).reshape(3, 4) / 10 - 0.5
GOLDEN_PARAMETERS = MuveraParameters(num_repetitions=2, num_simhash_projections=2, final_projection_dim=8)
GOLDEN = {
    "query": [-0.6, -0.3, -0.4, -0.9, -1, 0.6, 0.4, -0.6],
    "document": [-0.5, 0, -0.2, -0.5, -0.9, 0.3, 0.2, -0.2],
}

VARIANTS = [
    MuveraParameters(3, 2, None, None),
    MuveraParameters(3, 4, 5, None, seed=7),
    MuveraParameters(2, 3, None, 10, center_tokens=True),
    MuveraParameters(2, 3, 4, 16, seed=1, normalize=True),
    MuveraParameters(2, 3, 4, 64),
    MuveraParameters(1, 1, None, 10_000, normalize=True, center_tokens=True),
    MuveraParameters(3, 7, None, None, fill_empty_partitions=True),
    MuveraParameters(3, 6, 4, 50, seed=3, center_tokens=True, fill_empty_partitions=True),
]


def unit_tokens(rng, tokens, dims):
    rows = rng.standard_normal((tokens, dims)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def chamfer(query, document):
    return float((query @ document.T).max(axis=1).sum())


def in_loops(parameters, tokens, is_query):
    """The wire's words, one token and one number at a time."""
    tokens = np.asarray(tokens, np.float32)
    if parameters.center_tokens:
        tokens = tokens - tokens.mean(axis=0)
    dims, planes = tokens.shape[1], parameters.num_simhash_projections
    width = parameters.projection_dim or dims
    blocks = []
    for repetition in range(parameters.num_repetitions):
        seed = parameters.seed + repetition
        matrix = np.random.default_rng(seed).normal(0, 1, (dims, planes)).astype(np.float32)
        columns, signs = np.arange(dims), np.ones(dims)
        if parameters.projection_dim is not None:
            rng = np.random.default_rng(seed)
            columns = rng.integers(0, width, size=dims)
            signs = rng.choice([-1, 1], size=dims)
        block, counts = np.zeros((2**planes, width)), np.zeros(2**planes)
        sides = (tokens @ matrix > 0).astype(int)
        for token, bits in zip(tokens, sides, strict=True):
            index = gray_index(bits)
            counts[index] += 1
            for value, column, sign in zip(token, columns, signs, strict=True):
                block[index, column] += sign * value
        if not is_query:
            block[counts > 0] /= counts[counts > 0, None]
            if parameters.fill_empty_partitions:
                for of_partition in product((0, 1), repeat=planes):
                    if not counts[index := gray_index(of_partition)]:
                        nearest = tokens[np.abs(sides - of_partition).sum(axis=1).argmin()]
                        np.add.at(block[index], columns, signs * nearest)
        blocks.append(block.ravel())
    flat = np.concatenate(blocks)
    final = parameters.final_projection_dim
    if final is not None and final < len(flat):
        rng = np.random.default_rng(parameters.seed)
        buckets = rng.integers(0, final, size=len(flat))
        signs = rng.choice(np.array([-1, 1], np.float32), size=len(flat))
        flat = np.array([sum((signs * flat)[buckets == bucket]) for bucket in range(final)])
    return flat / np.linalg.norm(flat) if parameters.normalize else flat


def gray_index(bits):
    """Read bits as a number in Gray code, as the wire counts partitions."""
    index = 0
    for bit in bits:
        index = (index << 1) + (int(bit) ^ (index & 1))
    return index


@pytest.mark.parametrize("input_type", ["query", "document", None])
def test_the_golden_vectors_of_the_wire_come_out(input_type):
    converted = Muvera(GOLDEN_PARAMETERS, 4).convert(ItemOutput(multivector=GOLDEN_TOKENS), input_type)
    assert converted.dense.dtype == np.float32
    assert converted.dense == pytest.approx(GOLDEN[input_type or "document"], abs=1e-6)
    assert not converted.normalized


@pytest.mark.parametrize("is_query", [True, False])
@pytest.mark.parametrize("parameters", VARIANTS)
def test_an_encoding_is_what_plain_loops_make_of_the_definition(parameters, is_query):
    tokens = np.random.default_rng(0).standard_normal((17, 6)).astype(np.float32)
    tokens[3] = 0.0  # on every hyperplane: it belongs to the partition of no set bit, and counts there
    encoder = Muvera(parameters, 6)
    encoding = encoder.encode(tokens, is_query=is_query)
    assert (encoding.dtype, encoding.shape) == (np.float32, (encoder.dims,))
    assert encoding == pytest.approx(in_loops(parameters, tokens, is_query), abs=2e-5)


def test_a_filled_document_has_no_empty_partition_and_a_query_keeps_its_own():
    filling = MuveraParameters(5, 6, None, None, fill_empty_partitions=True)
    plain = MuveraParameters(5, 6, None, None)
    tokens = np.random.default_rng(2).standard_normal((3, 8)).astype(np.float32)
    filled = Muvera(filling, 8).encode(tokens, is_query=False).reshape(-1, 8)
    sparse = Muvera(plain, 8).encode(tokens, is_query=False).reshape(-1, 8)
    own = sparse.any(axis=1)
    assert not own.all()
    assert filled.any(axis=1).all()
    np.testing.assert_array_equal(filled[own], sparse[own])
    queries = [Muvera(parameters, 8).encode(tokens, is_query=True) for parameters in (filling, plain)]
    np.testing.assert_array_equal(*queries)


@pytest.mark.parametrize(
    "parameters",
    [MuveraParameters(4, 3), MuveraParameters(4, 3, 8, 100), MuveraParameters(4, 8, 8, fill_empty_partitions=True)],
)
def test_many_tokens_are_aggregated_in_parts_to_the_same_encoding(monkeypatch, parameters):
    tokens = np.random.default_rng(1).standard_normal((50, 8)).astype(np.float32)
    whole = [Muvera(parameters, 8).encode(tokens, is_query=is_query) for is_query in (True, False)]
    monkeypatch.setattr(muvera, "ENTRIES_AT_ONCE", 3 * 8 * 8)
    monkeypatch.setattr(muvera, "MEMBERSHIPS_AT_ONCE", 7 * 3 * 8)
    parts = [Muvera(parameters, 8).encode(tokens, is_query=is_query) for is_query in (True, False)]
    assert np.allclose(whole, parts, atol=1e-5)


@pytest.mark.parametrize(
    ("parameters", "dims"),
    [
        (MuveraParameters(), 10240),
        (MuveraParameters(projection_dim=8, final_projection_dim=None), 20480),
        (MuveraParameters(2, 3, 4, 64), 64),
        (MuveraParameters(2, 3, 4, 65), 64),
    ],
)
def test_the_size_is_that_of_the_sketch_unless_the_encoding_is_no_larger(parameters, dims):
    encoder = Muvera(parameters, 128)
    assert encoder.dims == dims
    assert encoder.encode(np.ones((2, 128)), is_query=True).shape == (dims,)


def test_without_tokens_the_encoding_is_zero():
    for parameters in (MuveraParameters(), MuveraParameters(normalize=True, center_tokens=True)):
        encoding = Muvera(parameters, 4).encode(np.zeros((0, 4), np.float32), is_query=False)
        assert encoding.dtype == np.float32
        assert not encoding.any()


def test_a_normalised_encoding_has_unit_length_and_one_of_zeros_stays_zero():
    encoder = Muvera(MuveraParameters(normalize=True), 4)
    assert np.linalg.norm(encoder.encode(GOLDEN_TOKENS, is_query=True)) == pytest.approx(1)
    assert encoder.convert(ItemOutput(multivector=GOLDEN_TOKENS), "query").normalized
    assert not encoder.encode(np.zeros((3, 4)), is_query=True).any()


def test_the_tokens_given_stay_as_they_are():
    tokens = GOLDEN_TOKENS.astype(np.float32)
    before = tokens.copy()
    Muvera(MuveraParameters(center_tokens=True), 4).encode(tokens, is_query=False)
    assert np.array_equal(tokens, before)


def test_parameters_that_need_too_much_memory_are_refused_before_any_is_taken():
    with pytest.raises(ValueError, match=r"num_repetitions 1000 x 2\^16 partitions x 128.*MiB.*64 MiB.*projection_dim"):
        Muvera(MuveraParameters(1000, 16), 128)


def test_with_identity_projection_no_repetition_exceeds_the_chamfer_similarity():
    """A partition's mean cannot match a query token better than its best token, if no best match is negative."""
    rng = np.random.default_rng(3)
    parameters = MuveraParameters(num_repetitions=16, num_simhash_projections=3, final_projection_dim=None)
    encoder = Muvera(parameters, 8)
    checked = close = 0
    for _ in range(300):
        query, document = unit_tokens(rng, 8, 8), unit_tokens(rng, 24, 8)
        if (query @ document.T).max(axis=1).min() < 0:
            continue
        checked += 1
        sides = encoder.encode(query, is_query=True), encoder.encode(document, is_query=False)
        repetitions = (sides[0] * sides[1]).reshape(16, -1).sum(axis=1)
        assert repetitions.max() <= chamfer(query, document) + 1e-4
        close += repetitions.max() > 0.5 * chamfer(query, document)
    assert checked > 250
    assert close > 0.5 * checked, "the bound is loose: encodings far below it would pass unseen"


def test_the_hundred_best_by_encoding_hold_the_best_by_late_interaction():
    rng = np.random.default_rng(5)
    dims, queries, documents = 32, 1000, 2000
    corpus = [unit_tokens(rng, int(tokens), dims) for tokens in rng.integers(8, 24, documents)]
    asked = [_planted(rng, corpus[at % documents]) for at in range(queries)]
    every, starts = np.concatenate(corpus), np.cumsum([0, *map(len, corpus[:-1])])
    first = [np.maximum.reduceat(query @ every.T, starts, axis=1).sum(axis=0).argmax() for query in asked]

    encoder = Muvera(MuveraParameters(num_repetitions=20, num_simhash_projections=4, final_projection_dim=4096), dims)
    encoded = np.stack([encoder.encode(document, is_query=False) for document in corpus])
    scores = np.stack([encoder.encode(query, is_query=True) for query in asked]) @ encoded.T
    above = (scores > scores[np.arange(queries), first][:, None]).sum(axis=1)

    assert np.mean(above < 100) >= 0.95
    means = np.stack([document.mean(axis=0) for document in corpus])
    averaged = np.stack([query.mean(axis=0) for query in asked]) @ means.T
    pooled = (averaged > averaged[np.arange(queries), first][:, None]).sum(axis=1)
    assert np.mean(pooled < 100) < 0.8, "the queries are so easy that a mean of tokens finds them too"


def _planted(rng, document):
    """Make a query of eight tokens near some of a document's."""
    tokens = document[rng.choice(len(document), 8)] + rng.normal(0, 0.22, (8, document.shape[1])).astype(np.float32)
    return tokens / np.linalg.norm(tokens, axis=1, keepdims=True)
