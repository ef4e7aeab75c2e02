"""Labels of tokens become entities: schemes of labels, words, groups, windows, and choices of a request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from sie_text.entities import EntityChoice, Marks, TagSet, joined_marks, mark, read_entities
from sie_text.entities.places import PlacedTokens
from sie_text.entities.windows import Bounds, cut_windows

from sie_core.contracts import InvalidInput, Task

BIOES = ("O", "B-PER", "I-PER", "E-PER", "S-PER", "B-LOC", "I-LOC", "E-LOC", "S-LOC")
BILOU = tuple(label.replace("E-", "L-").replace("S-", "U-") for label in BIOES)


def read(
    labels: Sequence[str],
    names: Sequence[str],
    scores: Sequence[float] = (),
    wanted: tuple[str, ...] = (),
    **asked: Any,
) -> list[tuple[Any, ...]]:
    """Read the entities of a text of one letter a token."""
    tags, count = TagSet.of(names), len(labels)
    numbers = np.array([names.index(label) for label in labels], dtype=np.int32)
    places = np.arange(count, dtype=np.int32)
    tokens = PlacedTokens("abcdefghij"[:count], places.astype(np.int64), places, places + 1, None)
    marks = Marks(numbers, np.array(scores or [0.5] * count, dtype=np.float32))
    task = Task("extract", labels=wanted, options=asked)
    found = read_entities(tokens, marks, tags, EntityChoice.of(task, tags, "model"))
    return [(each.text, each.label, round(each.score, 6)) for each in found]


@pytest.mark.parametrize("names", [BIOES, BILOU])
@pytest.mark.parametrize(
    ("roles", "texts"),
    [
        ("BIE", ["abc"]),
        ("SS", ["a", "b"]),
        ("BES", ["ab", "c"]),
        ("BEBE", ["ab", "cd"]),
        ("BEIE", ["ab", "cd"]),
        ("SIE", ["a", "bc"]),
        ("BB", ["a", "b"]),
        ("IIE", ["abc"]),
        ("B.E", ["a", "c"]),
    ],
)
def test_an_entity_of_bioes_ends_at_its_end(names: Sequence[str], roles: str, texts: list[str]) -> None:
    spelt = roles.translate(str.maketrans("ES", "LU")) if names is BILOU else roles
    labels = ["O" if role == "." else f"{role}-PER" for role in spelt]
    assert [text for text, *_ in read(labels, names)] == texts


def test_kinds_of_entities_are_kept_apart_and_scores_are_means() -> None:
    names = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
    labels = ["B-PER", "I-PER", "I-LOC", "O", "I-LOC", "B-LOC", "I-LOC"]
    found = read(labels, names, [0.9, 0.7, 0.5, 0.9, 0.4, 0.6, 0.8])
    assert found == [("ab", "PER", 0.8), ("c", "LOC", 0.5), ("e", "LOC", 0.4), ("fg", "LOC", 0.7)]


@pytest.mark.parametrize(
    ("names", "kinds"),
    [
        (("O", "NAME", "CREDIT-CARD"), ("NAME", "CREDIT-CARD")),
        (("O", "B-PER", "I-PER", "E-MAIL", "S-BAHN"), ("PER", "E-MAIL", "S-BAHN")),
        (("O", "B-PER", "I-PER", "E-PER", "S-PER", "S-MISC"), ("PER", "MISC")),
        (("LABEL_0", "LABEL_1"), ("LABEL_0", "LABEL_1")),
        (("O", "I-PER", "B-E-MAIL", "I-E-MAIL", "B-"), ("PER", "E-MAIL", "B-")),
        (("O",), ()),
    ],
)
def test_a_scheme_is_read_off_the_labels(names: Sequence[str], kinds: tuple[str, ...]) -> None:
    assert TagSet.of(names).kinds == kinds


def test_a_label_that_only_looks_like_an_end_neither_ends_nor_splits() -> None:
    assert read(["E-MAIL", "E-MAIL", "O"], ("O", "E-MAIL")) == [("ab", "E-MAIL", 0.5)]


def test_without_aggregation_each_token_has_its_own_label() -> None:
    found = read(["B-PER", "E-PER", "O"], BIOES, aggregation_strategy="none")
    assert found == [("a", "B-PER", 0.5), ("b", "E-PER", 0.5)]


def test_a_request_leaves_out_by_label_and_score() -> None:
    labels, scores = ["S-PER", "S-LOC", "S-PER"], [0.5, 0.9, 0.8]
    assert [text for text, *_ in read(labels, BIOES, scores, ("PER",))] == ["a", "c"]
    assert [text for text, *_ in read(labels, BIOES, scores, threshold=0.5)] == ["b", "c"]
    assert [text for text, *_ in read(labels, BIOES, scores, ("LOC", "PER"), threshold=0.85)] == ["b"]


def test_a_model_that_knows_no_entity_finds_none() -> None:
    assert read(["O", "O"], ("O",)) == []


@pytest.mark.parametrize(
    ("asked", "param", "said"),
    [
        ({"labels": ("PER", "B-LOC")}, "labels", "'B-LOC'; model finds PER, LOC"),
        ({"instruction": "find names"}, "instruction", "leave it out"),
    ],
)
def test_what_a_request_may_not_ask_is_named(asked: dict[str, Any], param: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as refused:
        EntityChoice.of(Task("extract", **asked), TagSet.of(BIOES), "model")
    assert refused.value.param == param


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("strategy", ["simple", "first", "average", "max", "none"])
def test_a_logit_that_is_no_number_never_looks_like_an_answer(bad: float, strategy: str) -> None:
    logits = np.zeros((3, len(BIOES)), dtype=np.float32)
    logits[1, 3] = bad
    tags, places = TagSet.of(BIOES), np.arange(3, dtype=np.int32)
    tokens = PlacedTokens("abc", places.astype(np.int64), places, places + 1, places > 0)
    choice = EntityChoice.of(
        Task("extract", labels=("LOC",), options={"aggregation_strategy": strategy, "threshold": 0.9}), tags, "model"
    )
    (entity,) = read_entities(tokens, mark(logits, strategy), tags, choice)
    assert math.isnan(entity.score)


def test_marks_of_windows_are_put_together_in_order() -> None:
    logits = np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32)
    for strategy in ("simple", "average"):
        whole, joined = mark(logits, strategy), joined_marks([mark(logits[:4], strategy), mark(logits[4:], strategy)])
        assert (whole.labels == joined.labels).all()
        assert (whole.scores == joined.scores).all()
        assert (whole.probabilities is None) == (joined.probabilities is None) == (strategy == "simple")


def test_windows_are_full_cover_each_token_once_and_give_it_the_most_context() -> None:
    for room in (1, 2, 3, 4, 7, 8, 30):
        for tokens in range(4 * room + 3):
            windows = cut_windows(tokens, room)
            owned = [place for each in windows for place in range(each.own_first, each.own_last)]
            assert owned == list(range(tokens))
            assert all(each.last - each.first == min(room, tokens) for each in windows)
            assert all(each.first <= each.own_first < each.own_last <= each.last for each in windows if tokens)
            for place in range(tokens):
                owner = next(each for each in windows if each.own_first <= place < each.own_last)
                seeing = [each for each in windows if each.first <= place < each.last]
                assert context(place, owner, tokens) == max(context(place, each, tokens) for each in seeing)


def context(place: int, window: Bounds, tokens: int) -> int:
    """Count the tokens between a token and the nearest edge of its window that cuts the text."""
    before = place - window.first if window.first else tokens
    return min(before, window.last - 1 - place if window.last < tokens else tokens)


@pytest.mark.parametrize("tokens", [9, 40, 41, 1000])
def test_neighbouring_windows_share_a_quarter_and_there_are_no_more_than_that_needs(tokens: int) -> None:
    room, shared = 8, 2
    windows = cut_windows(tokens, room)
    assert all(before.last - after.first >= shared for before, after in pairwise(windows))
    assert (len(windows) - 1) * (room - shared) + shared < tokens


def test_without_a_limit_there_is_one_window() -> None:
    assert cut_windows(5000, None) == [Bounds(0, 5000, 0, 5000)]
