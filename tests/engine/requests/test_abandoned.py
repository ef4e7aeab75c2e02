"""A request that nobody waits for any more leaves the queue of its stage at once: memory follows what is admitted."""

import asyncio
import threading
import time
import weakref

import pytest
from sie_fake.adapter import FakeAdapter
from sie_fake.device import FakeProbe
from sie_fake.memory import MEMORY
from sie_fake.record import RECORD

from sie_core.contracts import InferenceError, InferenceRequest, Item, Media, TokenizeRequest
from sie_core.engine.timeouts import Timeouts
from tests.engine.conftest import BOUND_S, bounded, loads_at_work, queued, request, until

MANY = 50


class Body(str):
    """A text that can be watched."""


async def held_thread(engines, **options):
    """Return an engine with one thread a stage, a model, and the hold of its preparation."""
    hold = engines.hold()
    hold.off()
    model = engines.model("model", inputs=("text", "image"), prepare_hold=str(hold), **options)
    engine = await engines.start(
        load=[model],
        preprocessor_workers=1,
        image_workers=1,
        max_concurrent_requests=4,
        timeouts=Timeouts(stall_s=30.0),
    )
    hold.on()
    return engine, model, hold


def ask(engine, kind, model, body, deadline=None):
    """Begin to ask for something that waits for a thread of the stage."""
    if kind == "tokens":
        return asyncio.create_task(engine.tokenize(TokenizeRequest(model, [body], "r", deadline=deadline)))
    images = [Media(b"picture")] if kind == "image" else []
    item = Item(text=body, images=images)
    return asyncio.create_task(
        engine.infer(InferenceRequest(model, "encode", [item], request_id="r", deadline=deadline))
    )


@pytest.mark.parametrize("how", ["client gone", "deadline"])
@pytest.mark.parametrize("kind", ["text", "image", "tokens"])
async def test_abandoned_requests_free_their_bodies_while_the_stage_is_held(engines, kind, how):
    engine, model, hold = await held_thread(engines)
    first = ask(engine, kind, model, "at work")
    await asyncio.sleep(0)
    bodies = []
    for number in range(MANY):
        body = Body(f"text {number}")
        bodies.append(weakref.ref(body))
        task = ask(engine, kind, model, body, time.monotonic() + 0.01 if how == "deadline" else None)
        del body
        await asyncio.sleep(0)
        if how == "client gone":
            task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() == (how == "client gone")
        assert task.cancelled() or task.exception().code == "DEADLINE_EXCEEDED"
        del task
    await until(lambda: not any(body() for body in bodies))
    assert not first.done()
    hold.off()
    await bounded(first)
    assert await bounded(engine.unload(model))  # nothing of them holds it


async def test_closing_answers_those_who_wait_for_their_tokens(engines):
    engine, model, hold = await held_thread(engines)
    waiting = [ask(engine, "tokens", model, "red fox") for _ in range(3)]
    await asyncio.sleep(0.01)
    closing = asyncio.create_task(engine.close())
    answers = await bounded(asyncio.gather(*waiting, return_exceptions=True))
    assert [answer.code for answer in answers] == ["QUEUE_UNAVAILABLE"] * 3
    hold.off()
    await bounded(closing)


@pytest.mark.parametrize("late", ["adapter", "model"])
async def test_a_request_whose_model_or_adapter_arrives_during_the_close_is_answered(engines, late, monkeypatch):
    finishing, arriving, finish = threading.Event(), engines.hold(), FakeAdapter.finish
    monkeypatch.setattr(FakeAdapter, "finish", lambda *call: finishing.wait(BOUND_S) and finish(*call))
    slow = engines.model("slow")
    options = {"lora_hold": str(arriving)} if late == "adapter" else {"load_hold": str(arriving)}
    base = engines.model("base", takes_lora=True, loras={"a": 4}, **options)
    engine = await engines.start(load=[slow, base] if late == "adapter" else [slow], timeouts=Timeouts(close_s=BOUND_S))
    running = asyncio.create_task(engine.infer(request(slow, "text")))
    await until(lambda: RECORD.runs(slow))
    waiting = asyncio.create_task(engine.infer(request(base, "text", options={"lora": "a"})))
    await until(lambda: loads_at_work(engine))
    closing = asyncio.create_task(engine.close())
    await until(lambda: not engines.threads("sie-prepare"))
    arriving.off()
    with pytest.raises(InferenceError) as caught:
        await bounded(waiting)
    assert caught.value.code == "QUEUE_UNAVAILABLE"
    assert not closing.done()
    finishing.set()
    await asyncio.wait([running])
    await bounded(closing)


async def test_a_load_that_a_close_cancels_while_it_is_measured_gives_back_what_it_made(engines, monkeypatch):
    model = engines.model("model", memory_bytes=50_000_000)
    engine = await engines.start(device="fake", timeouts=Timeouts(monitor_s=1000.0))
    measured, release, measure = threading.Event(), threading.Event(), FakeProbe.memory

    def measure_late(probe, device):
        if MEMORY.used:
            measured.set()
            release.wait(2 * BOUND_S)
        return measure(probe, device)

    monkeypatch.setattr(FakeProbe, "memory", measure_late)
    loading = asyncio.create_task(engine.load(model))
    try:
        await until(measured.is_set)
        await bounded(engine.close())
        with pytest.raises(InferenceError, match="closed"):
            await bounded(loading)
        await until(lambda: not MEMORY.used)
        assert len(RECORD.events(model, "unload")) == 1
    finally:
        release.set()


@pytest.mark.parametrize("how", ["client gone", "deadline"])
async def test_a_running_batch_is_abandoned_once_nobody_waits_for_any_of_its_requests(engines, monkeypatch, how):
    gates, begun, abandoned, run = [threading.Event(), threading.Event()], [], [], FakeAdapter.run

    def run_later(adapter, units):
        begun.append(units)
        assert gates[len(begun) - 1].wait(BOUND_S)
        return run(adapter, units)

    model = engines.model("model")
    engine = await engines.start(load=[model])
    monkeypatch.setattr(FakeAdapter, "run", run_later)
    monkeypatch.setattr(FakeAdapter, "abandon", lambda adapter, units: abandoned.append(units))
    try:
        before = ask(engine, "text", model, "before")
        await until(lambda: len(begun) == 1)
        late = time.monotonic() + BOUND_S / 30 if how == "deadline" else None
        first, second = ask(engine, "text", model, "one"), ask(engine, "text", model, "two", late)
        await until(lambda: queued(engine) == 2)
        gates[0].set()
        await until(lambda: len(begun) == 2)
        first.cancel()
        await asyncio.wait([first])
        if how == "client gone":
            assert not abandoned, "one of its requests is waited for"
            second.cancel()
        await asyncio.wait([second])
        assert abandoned
        assert all(units == list(begun[1]) for units in abandoned)
        await bounded(before)
    finally:
        for gate in gates:
            gate.set()
