"""The gate at overload, in virtual time: when refused clients are told to come back."""

from __future__ import annotations

from contextlib import ExitStack
from heapq import heappop, heappush
from itertools import count

import pytest

from sie_core.api import Gate
from sie_core.contracts import InferenceError

LIMIT, SERVED_S = 20, 1.0
SECONDS = 30.0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("times", [1.5, 2, 3])
def test_most_who_come_back_when_told_to_find_a_place(times: float) -> None:
    clock = Clock()
    gate = Gate(LIMIT, clock=clock)
    numbers, told, found = count(), 0, 0
    events = [(place * SERVED_S / LIMIT / times, next(numbers), "new") for place in range(int(SECONDS * LIMIT * times))]
    while events:
        clock.now, number, what = heappop(events)
        if what == "leaves":
            gate.leave(0, number)
            continue
        try:
            gate.enter(client := next(numbers))
        except InferenceError as error:
            if what == "new" and error.retry_after_s is not None:
                told += 1
                heappush(events, (clock.now + error.retry_after_s, next(numbers), "back"))
        else:
            found += what == "back"
            heappush(events, (clock.now + SERVED_S, client, "leaves"))
    assert told > 100
    assert found >= 0.25 * told  # they take their chance beside those who come first


def test_where_nothing_ever_left_nobody_is_told_a_time() -> None:
    gate = Gate(1)
    gate.enter()
    with pytest.raises(InferenceError) as caught:
        gate.enter()
    assert caught.value.retry_after_s == 1.0  # the error table's


def test_one_client_holds_three_quarters_of_the_places_and_the_next_finds_one() -> None:
    gate = Gate(8)
    for _ in range(6):
        gate.enter("greedy")
    with pytest.raises(InferenceError, match=r"6 requests of this client are in flight already, of 8"):
        gate.enter("greedy")
    gate.enter("other")
    gate.leave(0, "greedy")
    gate.enter("greedy")
    assert (gate.in_flight, gate.refused) == (7, 1)


def test_half_of_the_places_may_wait_for_loads() -> None:
    gate = Gate(8)
    with ExitStack() as stack:
        assert [stack.enter_context(gate.waiting()) for _ in range(6)] == [True] * 4 + [False] * 2
    with gate.waiting() as may_wait:
        assert may_wait  # all have left
