"""Labels and their activations in NumPy, against PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sie_text.labels import ACTIVATIONS, Labels, ScoreChoice, classify, score, sigmoid, softmax
from sie_text.recipe.encoders.dense import ACTIVATIONS as NAMED

from sie_core.contracts import InvalidInput, ModelCard, Task

VALUES = np.concatenate((np.linspace(-12, 12, 4001), [-1e4, -800, 800, 1e4])).astype(np.float32)


def test_every_activation_that_files_may_name_is_there() -> None:
    assert {name.rsplit(".", 1)[-1] for name in NAMED} == set(ACTIVATIONS)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_activation_is_pytorch_s(name: str, dtype: Any) -> None:
    values = VALUES.astype(dtype)
    expected = getattr(torch.nn, name)()(torch.from_numpy(values)).numpy()
    ours = ACTIVATIONS[name](values)
    assert ours.dtype == dtype
    np.testing.assert_allclose(ours, expected, rtol=2e-6, atol=2e-6)


def test_softmax_and_sigmoid_neither_overflow_nor_lose_an_infinity() -> None:
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        assert softmax(np.array([[1000.0, 0.0], [-1000.0, -1000.0]])).tolist() == [[1.0, 0.0], [0.5, 0.5]]
        assert sigmoid(np.array([-1000.0, 0.0, 1000.0])).tolist() == [0.0, 0.5, 1.0]
    assert np.isnan(score(np.array([0.0, np.inf], dtype=np.float32), ScoreChoice(1, "Sigmoid")))


def test_large_logits_give_probabilities() -> None:
    logits = np.array([[900.0, 0.0, 1000.0], [0.0, 0.0, -1000.0]], dtype=np.float32)
    for multi_label in (False, True):
        found = classify(logits, ["a", "b"], 2, multi_label=multi_label)
        assert [(each.label, each.score) for each in found] == [("a", 1.0), ("b", 0.0)]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["one"], (0, "Sigmoid")),
        (["no", "yes"], (1, "Identity")),
        (["contradiction", "neutral", "Entailment"], (2, "Identity")),
        (["a", "b", "c"], (None, "Identity")),
    ],
)
def test_the_score_is_the_only_label_or_entailment_or_the_second_of_two(names: list[str], expected: Any) -> None:
    config = {"id2label": {str(number): name for number, name in enumerate(names)}}
    labels = Labels.of(ModelCard(Path(), config), len(names), None)
    assert (labels.score, labels.activation) == expected
    if labels.score is None:
        with pytest.raises(InvalidInput, match="a, b, c"):
            labels.choose(Task("score"), "test/model")
    asked = labels.choose(Task("score", options={"score_label": names[-1], "activation": "sigmoid"}), "test/model")
    assert asked == ScoreChoice(len(names) - 1, "sigmoid")
