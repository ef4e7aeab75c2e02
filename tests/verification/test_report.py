"""Differences are measured as they are described, and a report says what follows from them."""

from math import inf

import numpy as np
import pytest

from sie_core.contracts import Entity, ItemOutput, SparseVector
from sie_core.verification import Report, Row, Unverified
from sie_core.verification.differences import difference, scores


def dense(*numbers: float) -> ItemOutput:
    return ItemOutput(dense=np.array(numbers, dtype=np.float32))


def sparse(**weights: float) -> ItemOutput:
    indices = np.array([int(name[1:]) for name in weights], dtype=np.int32)
    return ItemOutput(sparse=SparseVector(indices, np.array(list(weights.values()), dtype=np.float32)))


def entities(*scored: tuple[int, float]) -> ItemOutput:
    return ItemOutput(entities=tuple(Entity("a", "x", score, start=start, end=start + 1) for start, score in scored))


@pytest.mark.parametrize(
    ("kind", "ours", "theirs", "deviation"),
    [
        ("dense", dense(0.5, 0.25), dense(0.5, 0.5), 0.25),
        ("dense", dense(8, 4), dense(8, 6), 0.25),
        ("dense", dense(1, float("nan")), dense(1, 1), inf),
        ("dense", dense(1), dense(1, 1), inf),
        ("dense", ItemOutput(), dense(1), inf),
        ("sparse", sparse(i1=1, i5=0.5), sparse(i1=1), 0.5),
        ("score", ItemOutput(score=0.5), ItemOutput(score=0.25), 0.25),
        ("entities", entities((3, 0.5), (9, 0.75)), entities((9, 0.75), (3, 0.25)), 0.25),
        ("entities", entities((3, 0.5)), entities((4, 0.5)), inf),
        ("entities", entities(), entities((4, 0.5)), inf),
    ],
)
def test_a_difference_is_the_largest_relative_to_large_references(kind, ours, theirs, deviation):
    assert difference(kind, [ours, ours], [theirs, theirs]).deviation == deviation


def test_what_is_missing_is_told_with_its_item():
    found = difference("entities", [entities(), entities()], [entities(), entities((4, 0.5), (6, 0.5))])
    assert found.note.startswith("item 2: 2 missing, such as Entity(")
    assert difference("dense", [dense(1)], [dense(1, 2)]).note == "item 1: it has shape (1,), and the reference's (2,)"


@pytest.mark.parametrize(
    ("by", "query", "document", "score"),
    [
        ("dense", dense(1, 2), dense(3, -1), 1),
        ("sparse", sparse(i1=2, i4=1), sparse(i1=3, i2=9), 6),
        (
            "multivector",
            ItemOutput(multivector=np.array([[1, 0], [0, 1]])),
            ItemOutput(multivector=np.array([[2, 1], [0.5, 4]])),
            6,
        ),
    ],
)
def test_scores_are_computed_of_a_reference_s_vectors(by, query, document, score):
    encoded = {"query": [query], "document": [document]}
    (found,) = scores(lambda items, input_type: encoded[input_type], None, [None], by)
    assert found.score == score


def report(*deviations: float, lacking: str | None = None) -> Report:
    rows = tuple(Row("dense", "text", "library", 7, deviation, 1e-4) for deviation in deviations)
    return Report("a/b", "family", "cpu", "float32", {}, rows, (Unverified("sparse", lacking),) if lacking else ())


@pytest.mark.parametrize(
    ("made", "verdict", "last"),
    [
        (report(1e-6, 2e-5), "verified", "verified: the largest deviation is 2.0e-05 in float32"),
        (report(1e-6, 2e-3), "differs", "differs: the largest deviation is 2.0e-03 in float32"),
        (report(inf, lacking="x"), "differs", "differs: the largest deviation is inf in float32"),
        (report(1e-6, lacking="nobody does it"), "not verified", "not verified"),
        (report(), "not verified", "not verified"),
    ],
)
def test_the_verdict_is_that_of_the_worst(made, verdict, last):
    assert (made.verdict, made.lines()[-1]) == (verdict, last)


def test_the_table_has_a_line_a_row_and_says_what_was_not_compared():
    lines = report(1e-6, inf, lacking="nobody does it").lines()
    assert lines[0] == "a/b: family on cpu in float32"
    assert [line.rstrip().split("  ")[-1] for line in lines[3:5]] == ["ok", "DIFFERS"]
    assert "sparse was not compared: nobody does it" in lines
