"""A model that was trained on planted entities finds each once, at the place it was planted, wherever windows end."""

from collections import Counter
from typing import Any

import pytest

from tests.gliner.loading import asking, extract
from tests.gliner.planting import LABELS, plant
from tests.gliner.training import WINDOW


def found(extractor: Any, text: str, labels: tuple[str, ...] = LABELS, **options: Any) -> list[tuple[int, int, str]]:
    (output,) = extract(extractor, [text], asking(labels, **options))
    for entity in output.entities:
        assert text[entity.start : entity.end] == entity.text
    return [(entity.start, entity.end, entity.label) for entity in output.entities]


@pytest.mark.parametrize(("seed", "characters"), [(1, 60), (2, 200), (3, 2_000), (4, 20_000), (5, 20_000)])
def test_planted_entities_are_found_at_their_places_once_each(extractor: Any, seed: int, characters: int) -> None:
    made = plant(seed, characters=characters)
    assert found(extractor, made.text) == made.planted


def test_nested_search_doubles_nothing_either(extractor: Any) -> None:
    made = plant(6, characters=3_000)
    again = found(extractor, made.text, flat_ner=False)
    assert set(made.planted) <= set(again)
    assert max(Counter(again).values()) == 1


def test_an_entity_is_found_once_wherever_a_window_ends_in_it(extractor: Any) -> None:
    for before in range(WINDOW - 14, 2 * WINDOW):
        text = "the river " * (before // 2) + "quiet " * (before % 2)
        start = len(text)
        text += "Zoe\u0308 Lindqvist" + " the river note" * WINDOW
        assert found(extractor, text) == [(start, start + len("Zoe\u0308 Lindqvist"), "person")], before


def test_marks_and_joiners_without_tokens_shift_nothing(extractor: Any) -> None:
    text = "\u200d\u200b e\u0301 ❤️ the 👩‍🔬 saw Jose\u0301 Marsh\u0301 by ❤️ 🇫🇷 the 🦊\ufe0f of"
    assert [text[start:end] for start, end, _ in found(extractor, text)] == ["Jose\u0301 Marsh\u0301", "🦊\ufe0f"]


def test_only_what_is_asked_for_is_found(extractor: Any) -> None:
    made = plant(7, characters=3_000)
    for labels in (("city",), ("food",), ("animal", "product")):
        assert found(extractor, made.text, labels) == [each for each in made.planted if each[2] in labels]


def test_one_model_answers_many_texts_of_any_length_at_once(extractor: Any) -> None:
    made = [plant(seed, characters=seed * 37) for seed in range(1, 17)]
    outputs = extract(extractor, [each.text for each in made], asking(LABELS))
    for each, output in zip(made, outputs, strict=True):
        assert [(entity.start, entity.end, entity.label) for entity in output.entities] == each.planted
