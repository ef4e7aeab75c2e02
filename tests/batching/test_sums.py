"""Sums up to a place are those of all amounts there and before, and what is gone takes no memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sie_core.batching.sums import PrefixSums

PLACES = st.integers(0, 2**47)


@given(amounts=st.lists(st.tuples(PLACES, st.integers(-9, 9)), max_size=40), place=PLACES)
def test_sums_are_those_of_a_list(amounts: list[tuple[int, int]], place: int) -> None:
    sums = PrefixSums()
    for at, amount in amounts:
        sums.add(at, amount)
    for end in (place, *(at for at, _ in amounts)):
        assert sums.up_to(end) == sum(amount for at, amount in amounts if at <= end)
    for at, amount in amounts:
        sums.add(at, -amount)
    assert not sums._nodes
