"""The room that requests take between their preparation and the end of their run, under any order of calls."""

from collections import defaultdict

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sie_core.concurrency.room import Bounds, Room

BOUNDS = Bounds(sliced_cost=40, sliced_bytes=40, request_bytes=20, all_bytes=60)
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
