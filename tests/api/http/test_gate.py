"""The gate at overload, in virtual time: a client that comes back at the time it was told finds a place."""

from __future__ import annotations

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
def test_who_comes_back_when_told_to_finds_a_place_and_the_places_stay_bounded(times: float) -> None:
    clock = Clock()
    gate = Gate(LIMIT, clock=clock)
    numbers, told, found, most = count(), 0, 0, 0
    events = [(place * SERVED_S / LIMIT / times, next(numbers), "new") for place in range(int(SECONDS * LIMIT * times))]
    senders: dict[int, int] = {}
    while events:
        clock.now, number, what = heappop(events)
        if what == "leaves":
            gate.leave()
            continue
        sender = senders.get(number, number)
        try:
            gate.enter(sender)
        except InferenceError as error:
            if what == "new" and error.retry_after_s is not None:
                told += 1
                again = next(numbers)
                senders[again] = sender
                heappush(events, (clock.now + error.retry_after_s, again, "back"))
        else:
            found += what == "back"
            most = max(most, gate.in_flight)
            heappush(events, (clock.now + SERVED_S, next(numbers), "leaves"))
    assert told > 100
    assert found >= 0.9 * told
    assert most <= 1.5 * LIMIT


def test_where_nothing_ever_left_nobody_is_told_a_time() -> None:
    gate = Gate(1)
    gate.enter("a")
    with pytest.raises(InferenceError) as caught:
        gate.enter("b")
    assert caught.value.retry_after_s == 1.0  # the error table's


def test_a_stranger_takes_no_promised_place() -> None:
    clock = Clock()
    gate = Gate(1, clock=clock)
    for _ in range(8):
        gate.enter("a")
        clock.now += 0.1
        gate.leave()
    gate.enter("a")
    with pytest.raises(InferenceError) as caught:
        gate.enter("b")
    clock.now += caught.value.retry_after_s or 0.0
    with pytest.raises(InferenceError):
        gate.enter("c")
    gate.enter("b")
    with pytest.raises(InferenceError):
        gate.enter("b")  # a promise is kept once, and at most twice as many are at work as the limit says
