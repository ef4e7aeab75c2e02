"""Every kind of checkpoint gives what gliner gives on each window: spans, labels, scores; alone and in a batch."""

import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sie_core.contracts import Item, ItemOutput, Unit
from tests.gliner.checkpoints import KINDS, MAX_WORDS, SPAN_MODES
from tests.gliner.library import library
from tests.gliner.loading import answer, asking, extract, load, spans
from tests.gliner.planting import WORDS

LABELS = ("person", "old city", "place", "new")
CHECKPOINTS = [(kind, "bert") for kind in KINDS] + [
    ("span", "deberta"),
    ("bi-span", "deberta"),
    ("token", "modernbert"),
    ("relex", "deberta"),
]
CHOICES = [
    {"threshold": 0.5},
    {"threshold": 0.3, "flat_ner": False},
    {"threshold": 0.4, "multi_label": True},
    {"threshold": 0.45, "flat_ner": False, "multi_label": True},
]
CLOSE = 3e-4
"""Sums are in another order than gliner's: random weights give logits of hundreds, and its own scores are 1e-4 from
those of float64, as ours are; `test_heads` holds what is computed to 1e-5 and less."""
CLOSE_IN_BATCH = 1e-3
"""Random weights carry the last bit of a sum far; gliner's own batches differ from its single texts as much."""


@pytest.fixture(scope="session")
def pair(checkpoint: Callable[..., Path]) -> Callable[[str, str], tuple[Any, Path]]:
    """Our adapter, and the files that it and gliner read."""
    return cache(lambda kind, encoder: (load(checkpoint(kind, encoder)), checkpoint(kind, encoder)))


def write(seed: int, characters: int) -> str:
    """Write words of many scripts, one a joiner or a mark by chance."""
    chance = random.Random(seed)
    words = [*WORDS, "一", "ö", "naïve-née", "x" * 30, "2024", "\u0301", "👩‍👩‍👧"]
    text = ""
    while len(text) < characters:
        text += chance.choice(words) + chance.choice([" ", " ", "", "\n", ", "])
    return text


def compare(units: Sequence[Unit], outputs: Sequence[ItemOutput], folder: Path, **choice: Any) -> int:
    """Hold each window to gliner's answer on its text; return how many entities there are."""
    count = 0
    for unit, output in zip(units, outputs, strict=True):
        row = unit.payload
        start, end = int(row.starts[0]), int(row.ends[-1])
        expected = library().entities(folder, row.text[start:end], row.labels, **choice)
        for each in expected:
            each["start"], each["end"] = each["start"] + start, each["end"] + start
        assert spans(output.entities) == spans(expected)
        scores = {(each["start"], each["end"], each["label"]): each["score"] for each in expected}
        for entity in output.entities:
            assert abs(entity.score - scores[entity.start, entity.end, entity.label]) <= CLOSE
        count += len(expected)
    return count


def one_by_one(adapter: Any, units: Sequence[Unit]) -> list[ItemOutput]:
    return [output for unit in units for output in adapter.finish([unit], adapter.run([unit]))]


@pytest.mark.parametrize(("kind", "encoder"), CHECKPOINTS)
def test_a_text_that_fits_one_window_gives_gliner_s_entities(pair: Any, kind: str, encoder: str) -> None:
    adapter, folder = pair(kind, encoder)
    texts = [write(seed, 20 + 8 * seed) for seed in range(10)]
    count = 0
    for choice in CHOICES:
        units = list(adapter.prepare([Item(text=text) for text in texts], asking(LABELS, **choice)))
        count += compare(units, one_by_one(adapter, units), folder, **choice)
    assert count > 20


@pytest.mark.parametrize(("kind", "encoder"), CHECKPOINTS)
def test_each_window_of_a_long_text_gives_gliner_s_entities(pair: Any, kind: str, encoder: str) -> None:
    adapter, folder = pair(kind, encoder)
    units = list(adapter.prepare([Item(text=write(3, 2_500))], asking(LABELS, threshold=0.5)))
    assert len(units) > 10
    assert compare(units, one_by_one(adapter, units), folder, threshold=0.5) > 10


def test_each_window_of_20_000_characters_gives_gliner_s_entities(pair: Any) -> None:
    adapter, folder = pair("span", "deberta")
    units = list(adapter.prepare([Item(text=write(4, 20_000))], asking(LABELS, threshold=0.5)))
    assert len(units) > 100
    compare(units, one_by_one(adapter, units), folder, threshold=0.5)


@pytest.mark.parametrize("kind", ["span", "token", "bi-span", "relex"])
def test_a_row_of_a_batch_is_the_row_alone(pair: Any, kind: str) -> None:
    adapter, _ = pair(kind, "bert")
    asked = [asking(LABELS[: 1 + seed % 4], threshold=0.4 + seed / 100) for seed in range(12)]
    units = [next(adapter.prepare([Item(text=write(seed, 40 + 5 * seed))], task)) for seed, task in enumerate(asked)]
    together = adapter.finish(units, adapter.run(units))
    for output, alone in zip(together, one_by_one(adapter, units), strict=True):
        assert spans(output.entities) == spans(alone.entities)
        for one, other in zip(output.entities, alone.entities, strict=True):
            assert abs(one.score - other.score) <= CLOSE_IN_BATCH


@pytest.mark.parametrize("mode", SPAN_MODES)
def test_every_representation_of_spans_gives_gliner_s_entities_alone_and_in_a_batch(pair: Any, mode: str) -> None:
    adapter, folder = pair(mode, "bert")
    texts = [write(seed, 20 + 10 * seed) for seed in range(10)]
    for choice in CHOICES[:2]:
        units = list(adapter.prepare([Item(text=text) for text in texts], asking(LABELS, **choice)))
        alone = one_by_one(adapter, units)
        assert compare(units, alone, folder, **choice) > 5
        for output, other in zip(adapter.finish(units, adapter.run(units)), alone, strict=True):
            scores = {(each.start, each.end, each.label): each.score for each in other.entities}
            assert spans(output.entities) == spans(other.entities)
            assert all(
                abs(each.score - scores[each.start, each.end, each.label]) <= CLOSE_IN_BATCH for each in output.entities
            )


def test_a_text_of_as_many_words_as_the_model_takes_is_one_window(pair: Any) -> None:
    adapter, _ = pair("span", "bert")
    for words, windows in ((MAX_WORDS, 1), (MAX_WORDS + 1, 2)):
        assert len(list(adapter.prepare([Item(text="old " * words)], asking(["city"])))) == windows


def test_many_labels_leave_room_for_fewer_words(pair: Any) -> None:
    adapter, folder = pair("span", "bert")
    labels = [f"place{'x' * number}" for number in range(4)]
    units = list(adapter.prepare([Item(text="river place note " * 20)], asking(labels, threshold=0.3)))
    assert all(len(unit.payload.ids) <= adapter._rows.limits.tokens for unit in units)
    compare(units, one_by_one(adapter, units), folder, threshold=0.3)


def test_the_windows_of_a_text_are_merged_into_one_answer(pair: Any) -> None:
    adapter, _ = pair("span", "bert")
    text = write(9, 3_000)
    units = list(adapter.prepare([Item(text=text)], asking(LABELS, threshold=0.4)))
    (merged,) = answer(adapter, units)
    ends = 0
    for entity in merged.entities:
        assert entity.start >= ends  # flat: none lies in another's way, across windows too
        assert text[entity.start : entity.end] == entity.text
        ends = entity.end
    for output in extract(adapter, [text], asking(LABELS, threshold=0.4, flat_ner=False, multi_label=True)):
        places = [(each.start, each.end, each.label) for each in output.entities]
        assert len(places) == len(set(places))
