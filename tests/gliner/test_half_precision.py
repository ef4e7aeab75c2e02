"""Half precision gives the entities of float32, scores within 0.01; where it would not, float32 serves and says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from sie_gliner.loading import load as load_gliner

from sie_core.cache.choices import kept_choices
from sie_core.contracts import Entity, LoadContext
from sie_core.plugins import PluginSet
from sie_core.settings import load_settings
from tests.gliner.library import library
from tests.gliner.loading import asking, context, extract, load
from tests.gliner.planting import LABELS, plant
from tests.gliner.test_reference import LABELS as ASKED
from tests.gliner.test_reference import write


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute in bfloat16 whatever this processor is fast in."""
    monkeypatch.setenv("SIE_PYTORCH_CPU_BFLOAT16", "always")


WITHIN = 0.01
CALM = 0.35
"""What the matrices of a random encoder are multiplied by: attention as sharp as theirs multiplies every rounding."""
LAST = {"prompt_rep_layer.3.": 0.005, "scorer.out_mlp.3.": 0.1}
"""What logits are proportional to, and what brings those of random heads, of up to hundreds, below 1."""


def gentle(folder: Path) -> Path:
    """Make a random checkpoint's encoder multiply roundings no more than a trained one's, and its logits small."""
    file = folder / "model.safetensors"
    tensors = {
        name: tensor * CALM if ".encoder." in name and tensor.dim() > 1 else tensor
        for name, tensor in load_file(file).items()
    }
    for last, factor in LAST.items():
        tensors |= {name: tensor * factor for name, tensor in tensors.items() if name.startswith(last)}
    save_file(tensors, file)
    return folder


def found(adapter: Any, texts: list[str], labels: Any, **options: Any) -> list[dict[tuple[int, int, str], float]]:
    entities: list[tuple[Entity, ...]] = [each.entities for each in extract(adapter, texts, asking(labels, **options))]
    return [{(each.start, each.end, each.label): each.score for each in of_text} for of_text in entities]


def agree(ours: list[dict[Any, float]], theirs: list[dict[Any, float]], threshold: float) -> int:
    """Hold two answers to each other, but for what lies at the threshold; count what was found."""
    for one, other in zip(ours, theirs, strict=True):
        for place in one.keys() ^ other.keys():
            assert abs((one | other)[place] - threshold) <= WITHIN
        assert all(abs(one[place] - other[place]) <= WITHIN for place in one.keys() & other.keys())
    return sum(map(len, ours))


@pytest.mark.parametrize(("mode", "encoder"), [("span", "bert"), ("token", "deberta"), ("bi-span", "bert")])
def test_rough_heads_are_served_in_float32_and_that_is_said(mode: str, encoder: str, checkpoint: Any) -> None:
    folder = checkpoint(mode, encoder)
    served = load(folder, "float16")
    assert served.facts.precision == "float32"
    assert "in bfloat16 its probabilities move by" in served.facts.notes["precision"]
    texts = [write(seed, 40) for seed in range(3)]
    asked = {"threshold": 0.3, "multi_label": True, "flat_ner": False}
    assert agree(found(served, texts, ASKED, **asked), found(load(folder), texts, ASKED, **asked), 0.3) > 10


@pytest.mark.parametrize(("mode", "encoder"), [("span", "bert"), ("token", "deberta"), ("bi-span", "bert")])
def test_gentle_heads_are_served_in_half_precision(mode: str, encoder: str, tmp_path: Path) -> None:
    folder = gentle(library().write(tmp_path, mode, encoder))
    half = load(folder, "float16")
    assert half.facts.precision == "bfloat16"
    texts = [write(seed, 40) for seed in range(3)]
    asked = {"threshold": 0.45, "multi_label": True, "flat_ner": False}
    assert agree(found(half, texts, ASKED, **asked), found(load(folder), texts, ASKED, **asked), 0.45) > 10


def test_a_trained_checkpoint_finds_the_entities_of_float32(extractor: Any, trained: Path) -> None:
    texts = [plant(seed, characters=400).text for seed in range(10)]
    half = load(trained, "bfloat16")
    for threshold in (0.1, 0.5, 0.9):
        answers = (found(each, texts, LABELS, threshold=threshold) for each in (extractor, half))
        assert agree(*answers, threshold) > 50


def test_the_next_load_asks_for_float32_at_once(checkpoint: Any, tmp_path: Path) -> None:
    folder = checkpoint("span", "bert")
    kept = kept_choices(load_settings(local_cache=tmp_path), PluginSet(), folder)
    given: LoadContext = replace(context(folder, "float16"), choices=kept)
    first = load_gliner(given)
    (choice,) = kept.all()
    assert (choice.about, choice.chosen) == ("precision", "float32")
    again = load_gliner(given)
    assert again.facts.notes["precision"] == f"{first.facts.notes['precision']} (found by an earlier load)"
