"""Operations beside their libraries: what is asked, what counts as another answer, the whole of it on tiny models."""

from pathlib import Path

import numpy as np
import pytest

from tests.bench.operations.answers import deviation, read, save
from tests.bench.operations.measuring import Plan, measure
from tests.bench.operations.table import HEAD, rows
from tests.bench.operations.workload import OPERATIONS, make_load
from tests.bench.page.results import Results
from tests.bench.page.verdicts import verdicts
from tests.gliner.library import build


def test_a_load_is_cut_into_requests_of_one_query_each() -> None:
    load = make_load(OPERATIONS["score"], 10)
    parts = list(load.parts(64))
    assert [len(part.texts) for part in parts] == [3, 3, 3, 1]
    assert [text for part in parts for text in part.texts] == load.texts
    assert all(len(set(part.queries)) == 1 for part in parts)
    assert [len(part.texts) for part in make_load(OPERATIONS["extract"], 40).parts(16)] == [16, 16, 8]


def test_equal_answers_do_not_deviate_and_survive_a_file(tmp_path: Path) -> None:
    answers = {"vectors": np.eye(5, 3, dtype=np.float32), "lengths": np.array([2, 3])}
    save(tmp_path / "a.npz", answers)
    found = deviation(read(tmp_path / "a.npz"), answers)
    assert (found.largest, found.unequal, found.is_wrong("float32")) == (0, 0, False)


def test_a_difference_that_half_precision_explains_is_wrong_in_float32() -> None:
    expected = np.random.default_rng(1).normal(size=100).astype(np.float32)
    found = deviation({"scores": expected + 0.05}, {"scores": expected})
    assert found.is_wrong("float32")
    assert not found.is_wrong("bfloat16")
    assert deviation({"scores": expected[::-1]}, {"scores": expected}).is_wrong("bfloat16")
    assert deviation({"scores": np.full_like(expected, np.nan)}, {"scores": expected}).is_wrong("bfloat16")


def test_answers_of_another_shape_are_refused() -> None:
    vectors = np.zeros((5, 3), np.float32)
    with pytest.raises(ValueError, match="lengths: "):
        deviation({"vectors": vectors, "lengths": np.array([3, 2])}, {"lengths": np.array([2, 3]), "vectors": vectors})


def test_entities_are_compared_by_their_places() -> None:
    spans = np.array([[0, 0, 4, 1], [0, 5, 9, 0], [1, 0, 4, 1]])
    scores = np.array([0.5, 0.9, 0.7], np.float32)
    shuffled = deviation({"spans": spans[::-1], "scores": scores[::-1]}, {"spans": spans, "scores": scores})
    assert (shuffled.compared, shuffled.largest, shuffled.is_wrong("float32")) == (3, 0, False)
    moved = spans + np.array([0, 1, 0, 0]) * (np.arange(3) == 1)[:, None]
    found = deviation({"spans": moved, "scores": scores}, {"spans": spans, "scores": scores})
    assert (found.compared, found.unequal, found.is_wrong("float32")) == (4, 2, True)


@pytest.mark.parametrize(("apart", "wrong"), [(0.008, False), (0.012, True)])
def test_probabilities_close_to_a_threshold_may_differ_by_a_hundredth_in_half_precision(apart, wrong) -> None:
    spans, scores = np.array([[0, 0, 4, 1], [0, 5, 9, 0]]), np.array([0.81, 0.82])
    found = deviation({"spans": spans, "scores": scores + apart}, {"spans": spans, "scores": scores})
    assert found.is_wrong("bfloat16") == wrong
    assert found.is_wrong("float32")


@pytest.mark.slow
def test_every_operation_answers_as_its_library_and_has_a_row_and_a_verdict(tmp_path: Path) -> None:
    build()
    results = Results(operations=measure(Plan(threads=1, repeats=1, quick=True, tiny=True), tmp_path))
    assert results.operations.keys() == OPERATIONS.keys()
    for name, found in results.operations.items():
        assert not found["wrong"], (name, found["deviation"])
        assert found["deviation"]["compared"] > 0
        assert min(*found["ours"], *found["theirs"][str(found["default_size"])]) > 0
    assert [len(row) for row in rows(results.operations)] == [len(HEAD)] * len(OPERATIONS)
    assert len(list(verdicts(results))) == len(OPERATIONS)
