"""In bfloat16 the same spans and entities are found as in float32, but for those whose score is at the threshold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from sie_core.contracts import Item
from tests.gliner.checkpoints import SPAN_MODES
from tests.gliner.library import library
from tests.gliner.loading import asking, extract, load
from tests.gliner.planting import LABELS, plant
from tests.gliner.test_reference import LABELS as ASKED
from tests.gliner.test_reference import write


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute in bfloat16 whatever this processor is fast in."""
    monkeypatch.setenv("SIE_PYTORCH_CPU_BFLOAT16", "always")


AT_THE_THRESHOLD = 0.01
CALM = 0.35
"""What the matrices of a random encoder are multiplied by: attention as sharp as theirs multiplies every rounding."""
SPREAD = 0.5
"""The standard deviation that logits are brought to; those of random heads are in the hundreds, where probabilities
are 0 or 1 whatever the precision."""
MODES = ("span", *SPAN_MODES, "token", "bi-span", "bi-token")


def calm(folder: Path) -> Path:
    """Make a random checkpoint's encoders multiply roundings no more than a trained one's do."""
    file = folder / "model.safetensors"
    tensors = {
        name: tensor * CALM if ".encoder." in name and tensor.dim() > 1 else tensor
        for name, tensor in load_file(file).items()
    }
    save_file(tensors, file)
    return folder


def logits(adapter: Any, texts: list[str]) -> torch.Tensor:
    """Give the logits of every span of every text for every label, or of every word."""
    rows = [unit.payload for unit in adapter.prepare([Item(text=text) for text in texts], asking(ASKED))]
    found = adapter._forward.logits(adapter._forward.encode(rows), range(len(rows)))
    return found["grid" if "grid" in found else "words"]


@pytest.mark.parametrize("mode", MODES)
def test_the_spans_above_a_threshold_are_those_of_float32(mode: str, tmp_path: Path) -> None:
    folder = calm(library().write(tmp_path, mode, "deberta" if len(mode) % 2 else "bert"))
    single, half = load(folder), load(folder, "bfloat16")
    assert (single.facts.precision, half.facts.precision) == ("float32", "bfloat16")
    texts = [write(seed, 60 + 8 * seed) for seed in range(8)]
    expected, found = logits(single, texts), logits(half, texts)
    scale = SPREAD / float(expected.std())
    scores, others = torch.sigmoid(expected * scale), torch.sigmoid(found * scale)
    for threshold in (0.4, 0.5, 0.6):
        unequal = (scores > threshold) != (others > threshold)
        assert (scores > threshold).any()
        assert ((scores[unequal] - threshold).abs() <= AT_THE_THRESHOLD).all()


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.9])
def test_a_trained_checkpoint_finds_the_entities_of_float32(extractor: Any, trained: Path, threshold: float) -> None:
    texts = [plant(seed, characters=400).text for seed in range(10)]
    asked = asking(LABELS, threshold=threshold)
    outputs = zip(extract(extractor, texts, asked), extract(load(trained, "bfloat16"), texts, asked), strict=True)
    count = 0
    for single, half in outputs:
        scores, others = ({(e.start, e.end, e.label): e.score for e in each.entities} for each in (single, half))
        count += len(scores)
        for place in scores.keys() ^ others.keys():
            assert abs((scores | others)[place] - threshold) <= AT_THE_THRESHOLD
    assert count > 50
