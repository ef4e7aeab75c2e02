"""The room that requests take between their preparation and the end of their run, under any order of calls."""

import sys
from collections import defaultdict
from collections.abc import Callable

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sie_core.concurrency.room import Bounds, Room

BOUNDS = Bounds(sliced_cost=40, sliced_bytes=40, request_bytes=20, all_bytes=60)
CROWDED = Bounds(sliced_cost=1, sliced_bytes=1, request_bytes=20, all_bytes=10_000)
STEPS = st.lists(st.tuples(st.sampled_from("tgf"), st.integers(0, 4), st.integers(1, 15)), max_size=80)


@given(steps=STEPS)
@settings(max_examples=200, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink])
def test_whatever_is_taken_given_back_or_forgotten_nothing_stays_counted_and_nobody_waits_for_nothing(steps):
    room = Room(BOUNDS)
    held, waiting = defaultdict(int), set()

    def resumed(request):
        waiting.discard(request)
        held[request] += 1
        room.take(request, 1, 1)

    for step, request, size in steps:
        if step == "t" and request not in waiting:
            waiting.add(request)
            if room.enter(request, 20, lambda request=request: resumed(request)):
                waiting.discard(request)
                held[request] += size
                room.take(request, size, size)
        elif step == "g" and held[request]:
            given_back = min(size, held[request])
            held[request] -= given_back
            room.give(request, given_back, given_back)
        elif step == "f":  # cancelled, expired or answered, also while it waits
            waiting.discard(request)
            held.pop(request, None)
            room.forget(request)
            room.give(request, size, size)  # a batch that ran meanwhile ends later
        total = sum(held.values())
        assert room.held() == (total, total)
    waiting.clear()
    for request in range(5):
        room.forget(request)
    for request in list(held):  # whom that let in
        room.forget(request)
    assert room.held() == (0, 0)
    assert not room._held
    assert not room._parked
    assert (room._sliced.cost, room._sliced.nbytes) == (0, 0)


def test_who_is_cancelled_before_the_slice_it_was_let_in_for_lets_the_next_one_in():
    room, resumed = Room(BOUNDS), []
    assert room.enter("full", 20, lambda: None)
    room.take("full", 1, 60)
    for request in "ab":
        assert not room.enter(request, 20, lambda request=request: resumed.append(request))
    room.forget("full")
    assert resumed == ["a"]
    room.forget("a")
    assert resumed == ["a", "b"]


def calls_with(waiting: int, do: Callable[[Room], None]) -> int:
    """Count the Python calls of something done while so many requests wait for room for their third slices."""
    room, seen = Room(CROWDED), []
    for request in range(waiting):
        assert room.enter(request, 20, lambda: None)
        for _ in range(2):
            room.take(request, 1, 1)
    for request in range(waiting):
        assert not room.enter(request, 20, lambda: None)
    sys.setprofile(lambda frame, event, argument: seen.append(frame) if event == "call" else None)
    try:
        do(room)
    finally:
        sys.setprofile(None)
    return len(seen)


def test_a_refusal_costs_the_same_however_many_wait_for_room():
    assert calls_with(500, lambda room: room.forget("refused")) == calls_with(2, lambda room: room.forget("refused"))
