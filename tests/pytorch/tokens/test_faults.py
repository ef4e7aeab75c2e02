"""Seeded faults: each of them must be seen by the comparison with the pipeline and the reference for long texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sie_pytorch.families.tokens.loading import load
from sie_text.entities import marks as marking
from sie_text.entities import places, preparation, reading
from sie_text.entities.marks import Marks
from sie_text.entities.places import PlacedTokens
from sie_text.entities.tags import TagSet
from sie_text.entities.windows import Bounds, cut_windows
from sie_text.heads import EntityHead

from sie_core.contracts import Adapter
from tests.pytorch.encoders import context
from tests.pytorch.tokens.support import (
    STRATEGIES,
    Reference,
    assert_same,
    extract,
    odd_texts,
    write_token_classifier,
    write_word_pieces,
)

TEXTS = 40
TRUE_ROWS = EntityHead.lay_out
Seed = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_token_classifier("bert", tmp_path_factory.mktemp("bert"), tokenizer=write_word_pieces)


@pytest.fixture(scope="module")
def reference(folder: Path) -> Reference:
    return Reference(folder)


def compare(adapter: Adapter, reference: Reference, strategy: str) -> None:
    texts = odd_texts(TEXTS)
    for text, spans in zip(texts, extract(adapter, texts, aggregation_strategy=strategy), strict=True):
        assert_same(spans, (reference.spans if reference.fits(text) else reference.windowed)(text, strategy))


def tagged(change: Callable[[TagSet], TagSet]) -> Seed:
    true = TagSet.of

    def seed(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(TagSet, "of", staticmethod(lambda labels: change(true(labels))))

    return seed


def placed(change: Callable[[PlacedTokens], PlacedTokens]) -> Seed:
    true = places.place

    def seed(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(preparation, "place", lambda *given, **asked: change(true(*given, **asked)))

    return seed


def windowed(change: Callable[[list[Bounds]], list[Bounds]]) -> Seed:
    def seed(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(preparation, "cut_windows", lambda tokens, room: change(cut_windows(tokens, room)))

    return seed


def patched(where: Any, name: str, fault: Callable[..., Any]) -> Seed:
    return lambda patch: patch.setattr(where, name, fault)


def moved(windows: list[Bounds], by: int) -> list[Bounds]:
    """Move the borders between the windows' own tokens."""
    borders = [0, *(each.own_last + by for each in windows[:-1]), windows[-1].own_last]
    return [
        replace(each, own_first=first, own_last=last)
        for each, first, last in zip(windows, borders, borders[1:], strict=False)
    ]


def without_overlap(windows: list[Bounds]) -> list[Bounds]:
    return [Bounds(each.own_first, each.own_last, each.own_first, each.own_last) for each in windows]


def last_of_equals(marks: Marks, strategy: str, firsts: Any, counts: Any) -> Any:
    chosen = firsts + counts - 1 if strategy == "first" else firsts
    return marks.labels[chosen], marks.scores[chosen]


FAULTS: dict[str, tuple[str, Seed]] = {
    "a B continues an entity": ("simple", tagged(lambda tags: replace(tags, begins=np.zeros_like(tags.begins)))),
    "an I begins one": ("simple", tagged(lambda tags: replace(tags, begins=np.ones_like(tags.begins)))),
    "an I ends one": ("first", tagged(lambda tags: replace(tags, ends=np.ones_like(tags.begins)))),
    "kinds swapped": ("max", tagged(lambda tags: replace(tags, kinds=tags.kinds[::-1]))),
    "starts off by one": ("simple", placed(lambda made: replace(made, starts=made.starts + 1))),
    "ends off by one": ("none", placed(lambda made: replace(made, ends=made.ends - 1))),
    "places of bytes": (
        "simple",
        placed(lambda made: replace(made, ends=np.minimum(made.ends + made.starts % 2, len(made.text)))),
    ),
    "words cut at every token": (
        "average",
        placed(lambda made: replace(made, continues=np.zeros(len(made.starts), dtype=bool))),
    ),
    "unknown words joined": (
        "first",
        placed(lambda made: replace(made, continues=np.ones(len(made.starts), dtype=bool))),
    ),
    "the last token of a word": ("first", patched(reading, "_labelled", last_of_equals)),
    "the first in place of the surest": ("max", patched(reading, "_labelled", last_of_equals)),
    "borders of windows moved": ("simple", windowed(lambda windows: moved(windows, 8))),
    "windows without overlap": ("average", windowed(without_overlap)),
    "the neighbour's logits": ("simple", patched(EntityHead, "lay_out", lambda *given: TRUE_ROWS(*given) - 1)),
    "logits for probabilities": (
        "simple",
        patched(marking, "softmax", lambda logits: logits / np.abs(logits).sum(axis=-1, keepdims=True)),
    ),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_without_a_fault_all_is_equal(strategy: str, folder: Path, reference: Reference) -> None:
    compare(load(context(folder)), reference, strategy)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(fault: str, folder: Path, reference: Reference) -> None:
    strategy, seed = FAULTS[fault]
    with pytest.MonkeyPatch.context() as patch:
        seed(patch)
        adapter = load(context(folder))
        with pytest.raises(AssertionError):
            compare(adapter, reference, strategy)
