"""How the padded runner forms its batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from sie_pytorch.forward.padded.batches import PADDING_SHARE, PADDING_TOKENS, group_by_length

LENGTHS = st.lists(st.integers(1, 512), min_size=1, max_size=80)


@given(LENGTHS)
def test_every_sequence_is_in_one_batch_and_padding_stays_low(lengths: list[int]) -> None:
    batches = group_by_length(lengths)
    assert sorted(number for batch in batches for number in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[number] for number in batch)
        padding = sum(longest - lengths[number] for number in batch)
        assert padding <= max(PADDING_SHARE * longest * len(batch), PADDING_TOKENS)


@given(LENGTHS)
def test_exact_batches_hold_equal_lengths_and_as_many_as_there_are(lengths: list[int]) -> None:
    batches = group_by_length(lengths, exact=True)
    assert len(batches) == len(set(lengths))
    assert all(len({lengths[number] for number in batch}) == 1 for batch in batches)


def test_short_texts_share_one_batch_in_spite_of_padding() -> None:
    assert group_by_length([3, 20, 9, 14]) == [[1, 3, 2, 0]]


def test_a_long_text_does_not_pad_the_short_ones() -> None:
    assert group_by_length([400, 10, 10, 10]) == [[0], [1, 2, 3]]
