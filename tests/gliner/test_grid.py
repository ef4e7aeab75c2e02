"""Spans scored from their two ends have the logits of gliner's own forward pass, and no other model is scored so."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sie_gliner.batches import tensors
from sie_gliner.grid import EndScorer, scores_ends

from sie_core.contracts import Item
from tests.gliner.checkpoints import KINDS
from tests.gliner.loading import asking, load, reference

TEXTS = ("old note of a city with a river", "the new animal in Berlin and the food", "place")
FLOAT32 = 5e-6
"""How far sums of float32 may be apart, as a part of the largest logit."""


@pytest.mark.parametrize(
    ("kind", "encoder"), [("span", "bert"), ("span-mean", "bert"), ("span", "deberta"), ("bi-span", "bert")]
)
def test_the_logits_of_spans_are_gliner_s(checkpoint: Callable[..., Path], kind: str, encoder: str) -> None:
    adapter = load(checkpoint(kind, encoder))
    forward = adapter._forward
    rows = [unit.payload for unit in adapter.prepare([Item(text=text) for text in TEXTS], asking(["city", "new old"]))]
    model = reference(checkpoint(kind, encoder)).model
    exact = copy.deepcopy(model).double()
    assert scores_ends(exact)
    with torch.inference_mode():
        arguments = tensors(rows, forward.layout, forward.device)
        expected = exact(**arguments).logits
        inside = arguments["span_mask"].view(expected.shape[:3])
        largest = expected[inside].abs().max()
        for scorer, close in ((EndScorer(exact), 1e-14), (EndScorer(model), FLOAT32), (forward.ends, FLOAT32)):
            found = scorer(arguments)
            assert found.shape == expected.shape
            assert (found - expected)[inside].abs().max() <= close * largest


@pytest.mark.parametrize("kind", sorted(kind for kind in KINDS if kind not in {"span", "span-mean", "bi-span"}))
def test_other_models_run_their_own_forward_pass(checkpoint: Callable[..., Path], kind: str) -> None:
    assert load(checkpoint(kind, "bert"))._forward.ends is None


def test_another_representation_of_spans_is_left_to_gliner(checkpoint: Callable[..., Path]) -> None:
    model = reference(checkpoint("span", "bert")).model
    model.span_rep_layer.span_rep_layer.out_project.append(torch.nn.ReLU())
    assert not scores_ends(model)
