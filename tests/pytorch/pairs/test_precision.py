"""Half precision gives the scores of float32 within 0.01; where it would not, float32 serves and says so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from sie_cpu.plugin import sie_runners
from sie_pytorch.families.classify.loading import load as load_classifier
from sie_pytorch.families.pairs.loading import load as load_pairs
from sie_pytorch.forward.judging import logits
from sie_pytorch.forward.specs import RUNNERS

from sie_core.cache.choices import WeightChoices, kept_choices
from sie_core.plugins import PluginSet
from sie_core.settings import load_settings
from tests.pytorch.classify.test_classify import LABELS, classes, classifier
from tests.pytorch.corpus import make_texts
from tests.pytorch.pairs.support import context, score, write_classifier

WITHIN = 0.01
EVERY = (*RUNNERS, *sie_runners())
GENTLE = 0.05
"""What the last layer of a random head is multiplied by."""
ROUGH = 1e-6
"""A bound that no head keeps to: how far a random one moves depends on the processor's bfloat16."""


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute in bfloat16 whatever this processor is fast in."""
    monkeypatch.setenv("SIE_PYTORCH_CPU_BFLOAT16", "always")


def gentle(folder: Path) -> Path:
    file = folder / "model.safetensors"
    tensors = {
        name: (tensor * GENTLE if name.startswith("classifier.") else tensor).clone()
        for name, tensor in load_file(file).items()
    }
    save_file(tensors, file, metadata={"format": "pt"})
    return folder


def order(scores: Sequence[float]) -> list[int]:
    return [int(place) for place in np.argsort(-np.asarray(scores), kind="stable")]


def same_order(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    """Whether two answers rank alike, but for what lies closer together than they may differ."""
    pairs = zip(order(ours), order(theirs), strict=True)
    return all(abs(theirs[one] - theirs[other]) <= 2 * WITHIN for one, other in pairs)


@pytest.mark.parametrize("name", ["bert", "modernbert", "deberta-v2", "qwen3"])
def test_a_rough_reranker_scores_as_in_float32(name: str, tmp_path: Path) -> None:
    folder = write_classifier(name, tmp_path)
    served, single = (load_pairs(context(folder, precision=each, runners=EVERY)) for each in ("float16", "float32"))
    documents = make_texts(60, 20)
    scores, expected = score(served, documents), score(single, documents)
    assert np.abs(scores - expected).max() <= WITHIN
    assert same_order(scores, expected)
    if served.facts.precision == "float32":
        assert "in bfloat16 its probabilities move by" in served.facts.notes["precision"]


def test_a_gentle_reranker_keeps_half_precision(tmp_path: Path) -> None:
    served = load_pairs(context(gentle(write_classifier("bert", tmp_path)), precision="float16", runners=EVERY))
    assert served.facts.precision == "bfloat16"


def test_a_rough_classifier_is_served_in_float32_and_a_gentle_one_in_half_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = classifier("bert", tmp_path, labels=LABELS)
    texts = make_texts(40, 20)

    def served(precision: str, **arguments: Any) -> Any:
        return load_classifier(context(folder, precision=precision, runners=EVERY, **arguments))

    monkeypatch.setattr(logits, "MOST_MOVED", ROUGH)
    rough = served("float16")
    assert rough.facts.precision == "float32"
    assert "in bfloat16 its probabilities move by" in rough.facts.notes["precision"]
    assert classes(rough, texts) == classes(served("float32"), texts)
    monkeypatch.undo()
    monkeypatch.setenv("SIE_PYTORCH_CPU_BFLOAT16", "always")
    gentle(folder)
    half = served("float16")
    assert half.facts.precision == "bfloat16"
    for one, other in zip(classes(half, texts), classes(served("float32"), texts), strict=True):
        assert dict(one) == pytest.approx(dict(other), abs=WITHIN)


def test_a_later_load_asks_for_float32_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logits, "MOST_MOVED", ROUGH)
    folder = write_classifier("bert", tmp_path / "model")
    kept: WeightChoices = kept_choices(load_settings(local_cache=tmp_path / "cache"), PluginSet(), folder)
    given = context(folder, precision="float16", runners=EVERY, choices=kept)
    first = load_pairs(given).facts
    assert ("precision", "float32") in [(each.about, each.chosen) for each in kept.all()]
    again = load_pairs(given).facts
    assert (first.precision, again.precision) == ("float32", "float32")
    assert again.notes["precision"] == f"{first.notes['precision']} (found by an earlier load)"
