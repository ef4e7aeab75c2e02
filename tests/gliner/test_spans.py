"""What is chosen from probabilities is what gliner's decoders choose, and any threshold is answered soon."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sie_gliner.answers.spans import Candidates, choose, from_grid, from_listed, from_words

from tests.gliner.library import library

WORDS, WIDTHS, CLASSES = 9, 4, 3
ASKED = {
    "seed": st.integers(0, 10**6),
    "threshold": st.sampled_from([0.0, 0.1, 0.35, 0.5, 0.8]),
    "flat": st.booleans(),
    "multi_label": st.booleans(),
}


def logits(seed: int, *shape: int) -> torch.Tensor:
    """Draw few distinct values, so that many scores are equal."""
    return torch.randint(-6, 7, shape, generator=torch.Generator().manual_seed(seed)).float() / 3


def theirs(decoder: str, words: int, tensors: dict[str, Any], **choice: Any) -> list[tuple[int, int, int, float]]:
    return sorted(library().decode(decoder, words, CLASSES, tensors, **choice))


def ours(candidates: Candidates, flat: bool, multi_label: bool) -> list[tuple[int, int, int, float]]:
    chosen = choose(candidates, flat=flat, multi_label=multi_label)
    assert [(each.first, -each.score) for each in chosen] == sorted((each.first, -each.score) for each in chosen)
    return sorted((each.first, each.last, each.kind, each.score) for each in chosen)


@settings(max_examples=150, deadline=None)
@given(**ASKED)
def test_spans_of_a_grid_are_those_of_gliner_s_decoder(seed, threshold, flat, multi_label):
    scores = logits(seed, WORDS, WIDTHS, CLASSES)
    expected = theirs(
        "grid", WORDS, {"model_output": scores}, flat_ner=flat, threshold=threshold, multi_label=multi_label
    )
    found = from_grid(torch.sigmoid(scores).numpy(), threshold)
    assert ours(found, flat, multi_label) == expected


@settings(max_examples=150, deadline=None)
@given(**ASKED)
def test_spans_of_words_are_those_of_gliner_s_decoder(seed, threshold, flat, multi_label):
    scores = logits(seed, WORDS, CLASSES, 3) + 1
    expected = theirs(
        "words", WORDS, {"model_output": scores}, flat_ner=flat, threshold=threshold, multi_label=multi_label
    )
    found = from_words(torch.sigmoid(scores).numpy(), threshold)
    assert ours(found, flat, multi_label) == expected


@settings(max_examples=100, deadline=None)
@given(**ASKED)
def test_listed_spans_are_those_of_gliner_s_decoder(seed, threshold, flat, multi_label):
    scores = logits(seed, 12, CLASSES)
    first = logits(seed + 1, 12).abs().long()
    ends = torch.stack((first, first + logits(seed + 2, 12).abs().long()), dim=-1)
    listed = {"span_logits": scores, "span_idx": ends, "span_mask": torch.ones(12, dtype=torch.bool)}
    expected = theirs("words", WORDS, listed, flat_ner=flat, threshold=threshold, multi_label=multi_label)
    found = from_listed(ends.numpy(), torch.sigmoid(scores).numpy(), threshold)
    assert ours(found, flat, multi_label) == expected


@pytest.mark.timeout(60)
@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("multi_label", [True, False])
def test_a_threshold_of_zero_and_many_labels_are_answered_soon(flat, multi_label):
    random = np.random.default_rng(1)
    grid = random.random((384, 12, 100), dtype=np.float32)
    words = random.random((384, 20, 3), dtype=np.float32)
    for found, classes in ((from_grid(grid, 0.0), 100), (from_words(words, 0.0), 20)):
        chosen = choose(found, flat=flat, multi_label=multi_label)
        places = {(each.first, each.last) for each in chosen}
        assert 50 < len(places) <= (384 if flat else 2 * 384)
        assert len(chosen) == len(places) * (classes if multi_label else 1)
