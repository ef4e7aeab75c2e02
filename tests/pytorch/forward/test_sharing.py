"""A batch is split into as many shares for every thread, of nearly equally many tokens."""

import random

import pytest
from sie_pytorch.forward.sharing import ENOUGH, FEW, shares


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_sequence_is_in_one_share_and_shares_are_nearly_equal(threads: int) -> None:
    lengths = random.Random(3).choices(range(5, 200), k=90)
    found = shares(lengths, threads)
    assert sorted(number for share in found for number in share) == list(range(90))
    assert len(found) % threads == 0
    tokens = [sum(lengths[number] for number in share) for share in found]
    assert max(tokens) - min(tokens) <= 2 * max(lengths)
    assert max(tokens) <= ENOUGH + max(lengths)


def test_a_few_sequences_are_one_share() -> None:
    assert shares([20, 500, 21], 2) == [[0, 2, 1]]
    assert len(shares([20] * 2 * FEW, 2)) == 2
