"""Room for requests that were told to come back."""

from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sie_core.batching.sharing.promises import FARTHEST_S, FILL, LATE_S, STEP_S, Promises


def test_who_comes_back_in_time_is_known_once():
    promises = Promises()
    assert promises.make("a", free_at=2.2, seconds=0.1, now=0.0) == 3.0
    assert not promises.keep("b", 3.0)
    assert not promises.keep("a", 1.0)  # it did not wait
    assert promises.keep("a", 3.0)
    assert not promises.keep("a", 3.0)
    assert promises.due_s(3.0, 100.0) == 0.0


def test_what_is_due_is_the_time_of_those_that_have_not_come_back():
    promises = Promises()
    assert [promises.make(number, 0.0, 0.1, now=0.0) for number in range(4)] == [1.0, 1.0, 2.0, 2.0]
    assert promises.due_s(1.0, until=1.0) == pytest.approx(0.2)
    assert promises.due_s(1.0, until=1e30) == promises.due_s(1.0, until=60.0)
    assert promises.due_s(1.0, until=2.0) == pytest.approx(0.4)
    assert promises.keep(0, 1.0)
    assert promises.due_s(1.0, until=2.0) == pytest.approx(0.3)
    assert promises.keep(1, 1.0)
    assert promises.due_s(1.0, until=1.0) == 0.0


def test_room_is_kept_for_a_while_and_then_given_away():
    promises = Promises()
    promises.make("a", 0.0, 0.1, now=0.0)
    assert promises.due_s(0.5, until=0.6) == 0.0  # it is not due yet
    assert promises.due_s(1.5, until=2.0) > 0.0
    later = 1.0 + LATE_S + 2 * STEP_S
    assert promises.due_s(later, until=100.0) == 0.0
    assert not promises.keep("a", later)


def test_less_room_is_kept_the_fewer_come_back():
    promises = Promises()
    for at in range(0, 200, 5):
        promises.make(at, float(at), 0.1, now=float(at))
    promises.make("next", 200.0, 0.1, now=200.0)
    assert promises.due_s(201.0, until=202.0) < 0.02


def test_the_same_request_sent_twice_has_two_promises():
    promises = Promises()
    first, second = (promises.make("same", 0.0, 0.2, now=0.0) for _ in range(2))
    assert first < second
    assert promises.keep("same", first)
    assert not promises.keep("same", first)
    assert promises.keep("same", second)


@given(st.lists(st.tuples(st.floats(0, 0.2), st.floats(0.001, 1.0)), max_size=200))
@settings(deadline=None)
def test_no_more_is_promised_than_there_is(asked):
    promises, now, ends = Promises(), 0.0, []
    for number, (pause, seconds) in enumerate(asked):
        now += pause
        wait = promises.make(number, now, seconds, now)
        assert wait == int(wait) >= 1
        if wait < FARTHEST_S:
            ends.append((int((now + wait) / STEP_S), seconds))
    for first, _ in ends:  # who is told to come in one step finds it no fuller than it is, but for one large request
        of_step = sorted(min(seconds, STEP_S) for step, seconds in ends if step == first)
        assert sum(of_step[:-1]) <= FILL * STEP_S + 1e-9


def test_promises_that_are_over_leave_nothing_behind():
    promises = Promises()
    for number in range(100):
        promises.make(number, 0.0, 0.1, now=0.0)
    for number in range(50):
        promises.keep(number, 60.0)
    promises.due_s(10 * FARTHEST_S, 10 * FARTHEST_S)
    assert not promises._steps
    assert not promises._by_token


def test_a_later_promise_may_be_for_an_earlier_time():
    promises = Promises()
    promises.make("a", free_at=20.0, seconds=0.1, now=0.0)
    promises.make("a", free_at=2.0, seconds=0.1, now=0.0)
    later = 3.0 + LATE_S + 2 * STEP_S
    assert not promises.keep("a", later)  # the earlier has lapsed, and the later is not due
    assert promises.keep("a", 20.0)
    assert not promises.keep("a", 20.0)


@given(
    st.lists(st.tuples(st.floats(0, 0.5), st.floats(0, 130.0), st.sampled_from((0.001, 0.02, 0.15, 0.7))), max_size=300)
)
@settings(deadline=None)
def test_a_promise_is_for_the_first_second_with_room_whatever_was_promised_before(asked):
    promises, now = Promises(), 0.0
    for number, (pause, ahead_s, seconds) in enumerate(asked):
        now += pause
        first = max(1, ceil(now + ahead_s - now))
        free = (wait for wait in range(first, int(FARTHEST_S)) if promises._fits(int((now + wait) / STEP_S), seconds))
        expected = next(free, max(first, FARTHEST_S))
        assert promises.make(number, now + ahead_s, seconds, now) == expected
