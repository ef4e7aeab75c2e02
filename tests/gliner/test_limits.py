"""What one text may be answered with is bounded where labels multiply; who asks for more is told, and nobody else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sie_gliner.answers.reading import read
from sie_gliner.text.tally import MOST, Tally

from sie_core.contracts import InvalidInput, Item
from tests.gliner.checkpoints import MAX_WIDTH
from tests.gliner.loading import asking, extract, load

WORDS = ("old", "city", "river", "person", "food")
LABELS = tuple(f"{one} {other}" for one in WORDS for other in WORDS)


@pytest.fixture(scope="module")
def adapter(checkpoint: Callable[..., Path]) -> Any:
    return load(checkpoint("bi-span"))


def many(adapter: Any, **options: Any) -> Any:
    """Ask every label of every word of a long text; one output a window, read from probabilities that are above 0."""
    units = list(adapter.prepare([Item(text="river " * 1000)], asking(LABELS, threshold=0.0, **options)))
    outputs = []
    for unit in units:
        grid = np.random.default_rng(len(outputs)).random((1, unit.payload.words, MAX_WIDTH, len(LABELS)), np.float32)
        outputs.append(read(unit.payload, 0, {"grid": grid}))
    return units, outputs


def test_a_text_with_more_entities_than_the_limit_is_refused(adapter: Any) -> None:
    units, outputs = many(adapter, multi_label=True)
    refused = [output.refused for output in outputs if output.refused]
    assert all(isinstance(error, InvalidInput) for error in refused)
    given = sum(owned(unit, output) for unit, output in zip(units, outputs, strict=True))
    assert MOST - 24 * len(LABELS) <= given <= MOST
    error = refused[0]
    assert error.param == "options.threshold"
    assert error.message.startswith("options.threshold: items[0].text has more than 10000 entities")
    assert "multi_label" in error.message


def owned(unit: Any, output: Any) -> int:
    first, end = unit.payload.own
    return sum(first <= entity.start < end for entity in output.entities or ())


def test_what_neighbours_share_and_what_is_read_again_counts_once(adapter: Any) -> None:
    texts, labels = [Item(text="river " * 60)], asking(LABELS, threshold=0.5, multi_label=True)
    units = list(adapter.prepare(texts, labels))
    assert len(units) > 2
    shares = [
        np.full((1, unit.payload.words, MAX_WIDTH, len(LABELS)), 0.9, np.float32) * (np.arange(MAX_WIDTH) == 0)[:, None]
        for unit in units
    ]
    total = 60 * len(LABELS)
    assert sum(share[0, :, 0].size for share in shares) > total
    unit = units[0]
    for _ in range(MOST // total + 1):
        outputs = [read(unit.payload, 0, {"grid": share}) for unit, share in zip(units, shares, strict=True)]
        assert not any(output.refused for output in outputs)
    assert unit.payload.tally._totals["entities"] == total


def test_without_multi_label_no_text_is_refused(adapter: Any) -> None:
    for flat in (True, False):
        units, outputs = many(adapter, flat_ner=flat)
        assert adapter.combine(units, outputs).entities
        for unit, output in zip(units, outputs, strict=True):
            assert 0 < len(output.entities) <= (1 if flat else 2) * unit.payload.words


def test_texts_are_counted_by_themselves(adapter: Any) -> None:
    first, second = adapter.prepare([Item(text="old city")] * 2, asking(["place"], multi_label=True))
    assert first.payload.tally is not second.payload.tally
    assert len(extract(adapter, ["old city"] * 2, asking(LABELS, threshold=0.0, multi_label=True))) == 2


def test_relations_are_counted_too() -> None:
    tally = Tally("items[3].text")
    tally.count_relations(0, MOST)
    tally.count_entities(0, MOST)
    with pytest.raises(InvalidInput, match=r"options.relation_threshold: items\[3\].text has more") as refused:
        tally.count_relations(7, 1)
    assert refused.value.param == "options.relation_threshold"
