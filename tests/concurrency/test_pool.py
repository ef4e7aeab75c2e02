"""A pool makes the calls that somebody still waits for, in their order, and no others."""

import asyncio
import threading

import pytest

from sie_core.concurrency.pool import CpuPool
from sie_core.concurrency.threads import on_pool

BOUND_S = 30.0


@pytest.fixture
def pool():
    made = CpuPool("test", 1)
    made.start()
    yield made
    assert made.close(BOUND_S)


@pytest.fixture
def held(pool):
    """The event that ends the call which the pool's one thread is at."""
    begun, go_on = threading.Event(), threading.Event()
    pool.submit(lambda: (begun.set(), go_on.wait(BOUND_S)))
    assert begun.wait(BOUND_S)
    yield go_on
    go_on.set()


def test_calls_are_made_in_their_order_and_a_removed_one_never(pool, held):
    made = []
    works = [pool.submit(made.append, number) for number in range(6)]
    assert pool.waiting == 6
    assert [pool.remove(works[number]) for number in (0, 3, 5)] == [True] * 3
    assert pool.waiting == 3
    held.set()
    assert pool.close(BOUND_S)
    assert made == [1, 2, 4]
    assert not pool.remove(works[3])
    assert not pool.remove(works[1])


def test_quick_calls_and_others_take_turns_each_in_their_order(pool, held):
    made = []
    works = [pool.submit(made.append, f"slice {number}") for number in range(4)]
    works += [pool.submit(made.append, f"quick {number}", quick=True) for number in range(3)]
    assert pool.waiting == 7
    assert pool.remove(works[5])
    assert not pool.remove(works[5])
    held.set()
    assert pool.close(BOUND_S)
    assert made == ["quick 0", "slice 0", "quick 2", "slice 1", "slice 2", "slice 3"]


def test_a_closed_pool_makes_the_calls_that_wait_before_its_threads_end(pool, held):
    made = []
    pool.submit(made.append, 1)
    assert not pool.close(0.0)
    held.set()
    assert pool.close(BOUND_S)
    assert made == [1]


async def test_calls_that_nobody_awaits_any_more_do_not_pile_up_behind_one_that_hangs(pool, held):
    made = []
    for number in range(10):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(on_pool(pool, lambda number=number: made.append(number)), 0.001)
    assert pool.waiting == 0
    held.set()
    assert await asyncio.wait_for(on_pool(pool, lambda: "measured"), BOUND_S) == "measured"
    assert made == []
