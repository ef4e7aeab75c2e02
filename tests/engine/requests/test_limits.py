"""Deadlines, full queues and closing."""

import asyncio
import time

import pytest
from sie_fake.record import RECORD

from sie_core.contracts import InferenceError
from sie_core.defaults import BUILTINS
from sie_core.engine import build_engine
from sie_core.plugins import discover
from tests.engine.conftest import BOUND_S, bounded, queued, request, sample, until


async def blocked(engines, **settings):
    """Return an engine whose device is held by a first request, the model, that request's task and the hold."""
    hold = engines.hold()
    model = engines.model("held", run_hold=str(hold))
    engine = await engines.start(load=[model], **settings)
    first = asyncio.create_task(engine.infer(request(model, "first")))
    await until(lambda: RECORD.runs(model))
    return engine, model, first, hold


async def code_of(awaitable):
    with pytest.raises(InferenceError) as caught:
        await bounded(awaitable)
    return caught.value.code


@pytest.mark.parametrize("device", ["cpu", "fake"])
async def test_a_request_past_its_deadline_is_told_so_at_once_and_never_runs(engines, device):
    engine, model, first, hold = await blocked(engines, device=device)
    late = engine.infer(request(model, "late", "late too", deadline=time.monotonic() + 1.0))
    assert await code_of(late) == "DEADLINE_EXCEEDED"  # while the device is still held
    assert queued(engine) == 0
    assert sample(engine, "sie_dropped_units_total", model=model, reason="expired") == 2
    hold.off()
    await bounded(first)
    assert len((await bounded(engine.infer(request(model, "after")))).items) == 1
    assert not any("late" in text for run in RECORD.runs(model) for text in run.texts)


async def test_a_deadline_that_has_passed_already_is_answered_without_work(engines):
    model = engines.model("plain")
    engine = await engines.start(load=[model])
    assert await code_of(engine.infer(request(model, "late", deadline=time.monotonic() - 1))) == "DEADLINE_EXCEEDED"
    assert not RECORD.runs(model)


async def test_a_deadline_ends_the_wait_for_a_load(engines):
    hold = engines.hold()
    model = engines.model("slow", load_hold=str(hold))
    engine = await engines.start()
    assert await code_of(engine.infer(request(model, "x", deadline=time.monotonic() + 0.05))) == "DEADLINE_EXCEEDED"


async def test_a_deadline_that_is_kept_changes_nothing(engines):
    model = engines.model("plain")
    engine = await engines.start(load=[model])
    reply = await bounded(engine.infer(request(model, "text", deadline=time.monotonic() + 30)))
    assert len(reply.items) == 1


async def test_too_many_requests_are_turned_away(engines):
    engine, model, first, hold = await blocked(engines, max_concurrent_requests=3)
    others = [asyncio.create_task(engine.infer(request(model, f"t{number}"))) for number in range(2)]
    await until(lambda: queued(engine) == 2)
    with pytest.raises(InferenceError) as caught:
        await bounded(engine.infer(request(model, "one too many")))
    assert caught.value.code == "QUEUE_FULL"
    assert caught.value.retry_after_s >= 1
    hold.off()
    await bounded(asyncio.gather(first, *others))
    assert len((await bounded(engine.infer(request(model, "welcome again")))).items) == 1


async def test_queued_cost_is_bounded_but_an_empty_queue_takes_any_request(engines):
    engine, model, first, hold = await blocked(engines, max_queued_cost=10)
    large = asyncio.create_task(engine.infer(request(model, " ".join(["w"] * 50))))
    await until(lambda: queued(engine) == 1)
    with pytest.raises(InferenceError) as caught:
        await bounded(engine.infer(request(model, "more than a share of it is")))
    assert caught.value.code == "QUEUE_FULL"
    assert "SIE_MAX_QUEUED_COST" in caught.value.message
    assert caught.value.retry_after_s >= 1
    hold.off()
    assert [reply.usage.input_tokens for reply in await bounded(asyncio.gather(first, large))] == [1, 50]


async def test_an_engine_behind_a_gate_leaves_the_limit_of_requests_to_it(engines):
    hold = engines.hold()
    model = engines.model("held", run_hold=str(hold))
    settings = engines.settings(max_concurrent_requests=1)
    engine = build_engine(settings, discover(settings, BUILTINS), gated=True)
    engines.made.append(engine)
    await bounded(engine.start())
    tasks = [asyncio.create_task(engine.infer(request(model, f"t{number}"))) for number in range(3)]
    await until(lambda: engine.status().in_flight == 3)
    hold.off()
    assert [len(reply.items) for reply in await bounded(asyncio.gather(*tasks))] == [1] * 3


async def test_closing_turns_new_requests_away_and_answers_what_is_in_flight(engines):
    engine, model, first, hold = await blocked(engines)
    second = asyncio.create_task(engine.infer(request(model, "second")))
    await until(lambda: queued(engine) == 1)
    closing = asyncio.create_task(engine.close())
    assert await code_of(first) == "QUEUE_UNAVAILABLE"
    assert await code_of(second) == "QUEUE_UNAVAILABLE"
    with pytest.raises(InferenceError) as caught:
        await bounded(engine.infer(request(model, "late")))
    assert (caught.value.code, caught.value.retry_after_s) == ("QUEUE_UNAVAILABLE", 5.0)
    assert engine.health().ready_problem
    assert engine.health().live_problem is None
    hold.off()
    await bounded(closing)
    assert [run.texts for run in RECORD.runs(model)] == [("first",)]


async def test_closing_answers_a_request_that_waits_for_a_load(engines):
    hold = engines.hold()
    model = engines.model("slow", load_hold=str(hold))
    engine = await engines.start()
    task = asyncio.create_task(engine.infer(request(model, "text")))
    await until(lambda: engine.model(model).state == "loading")
    await bounded(engine.close())
    assert await code_of(task) == "QUEUE_UNAVAILABLE"


async def test_a_queued_unit_past_its_deadline_never_runs_even_while_the_event_loop_is_stuck(engines):
    engine, model, first, hold = await blocked(engines)
    deadline = time.monotonic() + 1.0
    late = asyncio.create_task(engine.infer(request(model, "late", deadline=deadline)))
    await until(lambda: queued(engine) == 1)
    time.sleep(max(0.0, deadline - time.monotonic()))  # noqa: ASYNC251 - the loop is stuck: no timer of its own can help
    hold.off()
    bound = time.monotonic() + BOUND_S
    while queued(engine) and time.monotonic() < bound:
        time.sleep(0.001)  # noqa: ASYNC251
    assert await code_of(late) == "DEADLINE_EXCEEDED"
    await bounded(first)
    assert [run.texts for run in RECORD.runs(model)] == [("first",)]
    assert sample(engine, "sie_dropped_units_total", model=model, reason="expired") == 1


@pytest.mark.parametrize("load_wait_s", [0.0, BOUND_S])
async def test_a_deadline_that_passes_while_an_adapter_loads_is_told_as_one(engines, load_wait_s):
    hold = engines.hold()
    model = engines.model("base", takes_lora=True, loras={"a": 4}, lora_hold=str(hold))
    engine = await engines.start(load=[model])
    deadline = time.monotonic() + (0.05 if load_wait_s else -1.0)
    late = request(model, "text", options={"lora": "a"}, deadline=deadline, load_wait_s=load_wait_s)
    assert await code_of(engine.infer(late)) == "DEADLINE_EXCEEDED"
    early = request(model, "text", options={"lora": "a"}, deadline=time.monotonic() + BOUND_S, load_wait_s=0.0)
    assert await code_of(engine.infer(early)) == "LORA_LOADING"
