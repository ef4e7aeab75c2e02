"""Shortened vectors equal those of sentence-transformers, which cuts after the model's own normalisation."""

import numpy as np
import pytest

from sie_core.postprocess import shorten

VECTOR = np.array([3.0, 4.0, 12.0, 84.0], dtype=np.float32)


def test_a_vector_that_is_not_normalised_is_only_cut():
    assert shorten(VECTOR, 2, normalized=False).tolist() == [3.0, 4.0]


def test_a_vector_of_unit_length_is_brought_back_to_it():
    unit = VECTOR / np.linalg.norm(VECTOR)
    short = shorten(unit, 2, normalized=True)
    assert short.dtype == np.float32
    assert short.tolist() == pytest.approx([0.6, 0.8], abs=1e-6)


def test_the_whole_size_changes_nothing():
    unit = (VECTOR / np.linalg.norm(VECTOR)).astype(np.float32)
    assert shorten(unit, 4, normalized=True) == pytest.approx(unit, abs=1e-7)


def test_a_part_without_length_stays_zero():
    assert shorten(np.array([0.0, 0.0, 1.0], np.float32), 2, normalized=True).tolist() == [0.0, 0.0]


def test_the_numbers_are_those_of_sentence_transformers():
    torch = pytest.importorskip("torch")
    util = pytest.importorskip("sentence_transformers.util")
    rng = np.random.default_rng(0)
    full = torch.nn.functional.normalize(torch.tensor(rng.normal(size=(8, 64)), dtype=torch.float32), dim=1)
    for normalized in (False, True):
        expected = util.truncate_embeddings(full, 16)
        if normalized:
            expected = torch.nn.functional.normalize(expected, p=2, dim=1)
        ours = np.stack([shorten(row, 16, normalized) for row in full.numpy()])
        assert np.abs(ours - expected.numpy()).max() < 1e-6
