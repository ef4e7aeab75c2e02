"""The texts and cells of the bench are the same every time and as long as they say."""

import numpy as np

from tests.bench.workload.texts import KINDS, make_texts
from tests.bench.workload.workloads import HEAVY, TOKENS_A_TEXT, grid


def test_texts_are_the_same_every_time_and_differ_from_each_other() -> None:
    for kind, lengths in KINDS.items():
        texts = make_texts(kind)
        assert texts == make_texts(kind)
        assert len(set(texts)) == len(texts) == lengths.pool


def test_lengths_follow_their_distribution_and_keep_its_bounds() -> None:
    for kind, lengths in KINDS.items():
        words = [len(text.split()) for text in make_texts(kind)]
        assert lengths.least <= min(words)
        assert max(words) <= lengths.most
        assert abs(np.median(words) - lengths.median) <= 0.05 * lengths.median + 1


def test_every_client_of_a_cell_has_work_and_every_text_lies_in_its_pool() -> None:
    cells = grid(2.0)
    assert len(cells) == 24
    for cell in cells:
        assert cell.least >= cell.clients
        assert len({place for places in cell.requests for place in places}) == KINDS[cell.kind].pool
        assert {len(places) for places in cell.requests} == {cell.group}
        assert max(map(max, cell.requests)) < KINDS[cell.kind].pool
        assert cell.is_heavy == (cell.clients * cell.group * TOKENS_A_TEXT[cell.kind] >= HEAVY)
