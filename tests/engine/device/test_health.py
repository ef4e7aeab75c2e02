"""Liveness tells the truth: a wedged batch and a dead device thread are seen, and nothing else is."""

import asyncio
import ctypes
import threading
from dataclasses import dataclass

import pytest
from sie_fake.record import RECORD

from sie_core.contracts import InferenceError
from sie_core.engine.timeouts import Timeouts
from tests.engine.conftest import Clock, bounded, request, sample, until


@pytest.mark.parametrize("device", ["cpu", "fake"])
async def test_a_batch_that_hangs_turns_liveness_red_and_its_end_turns_it_green(engines, device):
    hold = engines.hold()
    model = engines.model("held", run_hold=str(hold))
    engine = await engines.start(load=[model], timeouts=Timeouts(stall_s=0.05), device=device)
    task = asyncio.create_task(engine.infer(request(model, "text")))
    await until(lambda: RECORD.runs(model))
    await until(lambda: engine.health().live_problem)
    assert model in engine.health().live_problem
    assert engine.health().ready_problem == engine.health().live_problem
    hold.off()
    await bounded(task)
    await until(lambda: engine.health().live_problem is None)


async def test_a_batch_hung_on_the_device_itself_is_seen_too(engines):
    model = engines.model("slow", runtime={"latency_ms": 700.0})
    engine = await engines.start(load=[model], timeouts=Timeouts(stall_s=0.05), device="fake")
    task = asyncio.create_task(engine.infer(request(model, "text")))
    await until(lambda: engine.health().live_problem)
    await bounded(task)


async def test_a_batch_that_is_slow_as_predicted_is_no_hang(engines):
    model = engines.model("slow", runtime={"latency_ms": 150.0})
    engine = await engines.start(load=[model], timeouts=Timeouts(stall_s=0.05))
    await bounded(engine.infer(request(model, "teaches the policy how long a run takes")))
    RECORD.clear()
    task = asyncio.create_task(engine.infer(request(model, "is predicted by what it learned from the other")))
    await until(lambda: RECORD.runs(model))
    problems = set()
    while not task.done():
        problems.add(engine.health().live_problem)
        await asyncio.sleep(0.005)
    assert problems <= {None}


async def kill_device_thread(engines, engine, model):
    """Raise in the idle thread, outside any batch; it notices when it is woken."""
    (thread,) = engines.threads("sie-device")
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
    with pytest.raises(InferenceError) as caught:
        await bounded(engine.infer(request(model, "wakes it")))
    return caught.value


async def test_a_dead_device_thread_turns_liveness_red_and_every_request_is_answered(engines):
    model = engines.model("plain")
    engine = await engines.start(load=[model])
    error = await kill_device_thread(engines, engine, model)
    assert error.code == "QUEUE_UNAVAILABLE"
    await until(lambda: not engines.threads("sie-device"))
    assert "died" in engine.health().live_problem
    assert "died" in engine.health().ready_problem
    for number in range(3):
        with pytest.raises(InferenceError) as caught:
            await bounded(engine.infer(request(model, f"later {number}")))
        assert caught.value.code == "QUEUE_UNAVAILABLE"
    assert sample(engine, "sie_requests_in_flight") == 0


@dataclass
class BreakingClock(Clock):
    """A clock that ends the thread of the device when that asks for the time: no batch and no policy can do so."""

    broken: bool = False

    def __call__(self):
        if self.broken and threading.current_thread().name.startswith("sie-device"):
            raise SystemExit("the loop itself is broken")
        return super().__call__()


async def test_a_dead_device_thread_answers_what_was_queued(engines):
    hold = engines.hold()
    model = engines.model("held", run_hold=str(hold))
    engine = await engines.start(load=[model], clock=(clock := BreakingClock()))
    (thread,) = engines.threads("sie-device")
    tasks = [asyncio.create_task(engine.infer(request(model, "running")))]
    await until(lambda: RECORD.runs(model))
    tasks += [asyncio.create_task(engine.infer(request(model, f"queued {number}"))) for number in range(8)]
    await until(lambda: sample(engine, "sie_queue_units") == 8)
    clock.broken = True
    hold.off()
    replies = await bounded(asyncio.gather(*tasks, return_exceptions=True))
    assert {reply.code for reply in replies if isinstance(reply, InferenceError)} == {"QUEUE_UNAVAILABLE"}
    assert sum(isinstance(reply, InferenceError) for reply in replies) >= 8
    assert "SystemExit" in engine.health().live_problem
    await until(lambda: not thread.is_alive())


async def test_a_healthy_engine_has_no_problem_and_closing_joins_its_threads(engines):
    model = engines.model("plain")
    engine = await engines.start(load=[model])
    await bounded(engine.infer(request(model, "text")))
    assert (engine.health().live_problem, engine.health().ready_problem) == (None, None)
    await bounded(engine.close())
    await until(lambda: not engines.threads())
    assert "closed" in engine.health().ready_problem
    assert engine.health().live_problem is None
