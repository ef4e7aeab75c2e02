"""A batch is cut into passes of rows of like length; each row is in one of them."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sie_gliner.chunks import FEW, MOST_PADDING, PASS, SHARE, chunks, shares
from sie_gliner.rows import Row

from sie_core.contracts import Item
from tests.gliner.loading import asking, load


@pytest.fixture(scope="module")
def row(checkpoint: Callable[..., Path]) -> Callable[[int], Row]:
    """Give a row of as many tokens as asked for."""
    (unit,) = load(checkpoint("span", "bert")).prepare([Item(text="old city")], asking(["place"]))
    return lambda length: replace(unit.payload, ids=np.zeros(length, np.int64))


def test_every_row_is_in_one_pass_and_little_of_a_pass_is_padding(row: Callable[[int], Row]) -> None:
    lengths = random.Random(2).choices(range(5, 400), k=200)
    found = list(chunks([row(length) for length in lengths]))
    assert sorted(place for chunk in found for place in chunk) == list(range(200))
    assert 2 < len(found) < 50
    for chunk in found:
        inside = [lengths[place] for place in chunk]
        padding = max(inside) * len(inside) - sum(inside)
        assert padding <= max(PASS, MOST_PADDING * max(inside) * len(inside))


def test_rows_of_like_length_share_a_pass_and_a_long_row_has_its_own(row: Callable[[int], Row]) -> None:
    assert list(chunks([row(30)] * 64)) == [list(range(64))]
    assert list(chunks([row(20), row(500), row(21)])) == [[0, 2], [1]]
    assert list(chunks([row(9)])) == [[0]]


def test_a_long_window_on_an_accelerator_does_not_pad_the_short_ones(
    checkpoint: Callable[..., Path], row: Callable[[int], Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = load(checkpoint("span", "bert"))
    monkeypatch.setattr(adapter._forward, "device", torch.device("cuda"))
    lengths = [512, *[20] * 600]
    passes = adapter._together([row(length) for length in lengths])
    assert sorted(place for places in passes for place in places) == list(range(601))
    assert sum(len(places) * max(lengths[place] for place in places) for places in passes) < 1.2 * sum(lengths)
    assert adapter._together([row(length) for length in (20, 60, 22)]) == [[0, 2, 1]]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_row_is_in_one_share_and_shares_are_nearly_equal(row: Callable[[int], Row], threads: int) -> None:
    lengths = random.Random(3).choices(range(5, 200), k=90)
    found = shares([row(length) for length in lengths], threads)
    assert sorted(place for share in found for place in share) == list(range(90))
    assert len(found) % threads == 0
    tokens = [sum(lengths[place] for place in share) for share in found]
    assert max(tokens) - min(tokens) <= 2 * max(lengths)
    assert max(tokens) <= SHARE + max(lengths)


def test_a_few_rows_are_one_pass(row: Callable[[int], Row]) -> None:
    assert shares([row(20), row(500), row(21)], 2) == [[0, 2, 1]]
    assert len(shares([row(20)] * 2 * FEW, 2)) == 2
