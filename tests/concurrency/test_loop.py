"""A thread that has something to tell an event loop is not harmed by the loop being closed at that moment."""

import asyncio
import threading
from pathlib import Path

import pytest

import sie_core
from sie_core.concurrency.leases import Leases
from sie_core.concurrency.loop import call_soon
from sie_core.concurrency.threads import on_thread

BOUND_S = 30.0


@pytest.fixture
def closing_loop():
    """A loop; `close` closes it, and who asks right before is told that it is open."""
    loop = asyncio.new_event_loop()
    closed = loop.is_closed
    yield loop
    loop.is_closed = closed
    loop.close()


def begin(loop, awaitable):
    """Begin something that is still waiting when the loop is closed."""
    task = loop.create_task(awaitable)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    loop.is_closed = lambda: False  # as it was when somebody asked
    task._log_destroy_pending = False


def test_a_call_is_made_while_the_loop_is_open_and_refused_once_it_is_closed(closing_loop):
    told = []
    assert call_soon(closing_loop, told.append, 1)
    begin(closing_loop, asyncio.sleep(BOUND_S))
    assert told == [1]
    assert not call_soon(closing_loop, told.append, 2)


def test_who_lets_a_model_go_last_is_not_harmed(closing_loop):
    use = Leases()
    lease = use.acquire()
    begin(closing_loop, use.idle())
    lease.release()
    assert use.count == 0


def test_a_thread_that_ends_after_the_loop_is_not_harmed(closing_loop, monkeypatch):
    raised, go_on = [], threading.Event()
    monkeypatch.setattr(threading, "excepthook", raised.append)
    begin(closing_loop, on_thread("test-late", lambda: go_on.wait(BOUND_S)))
    (thread,) = [each for each in threading.enumerate() if each.name == "test-late"]
    go_on.set()
    thread.join(BOUND_S)
    assert raised == []


def test_nothing_else_calls_a_loop_from_a_thread():
    sources = Path(sie_core.__file__).parent.rglob("*.py")
    callers = [file.name for file in sources if "call_soon_threadsafe" in file.read_text(encoding="utf-8")]
    assert callers == ["loop.py"]


async def test_what_a_cancelled_call_returns_is_discarded_on_a_thread_whenever_it_comes():
    began, go_on, discarded = threading.Event(), threading.Event(), threading.Event()
    seen = []

    def call():
        began.set()
        go_on.wait(BOUND_S)
        return "result"

    task = asyncio.create_task(on_thread("test-discarded", call, lambda result: (seen.append(result), discarded.set())))
    await asyncio.to_thread(began.wait, BOUND_S)
    task.cancel()
    await asyncio.wait([task])
    go_on.set()
    assert await asyncio.to_thread(discarded.wait, BOUND_S)
    assert seen == ["result"]
