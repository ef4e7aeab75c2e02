"""On an accelerator with a stream of higher priority a batch of short requests runs beside a long one."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from random import Random

import pytest
from sie_fake.adapter import FakeAdapter
from sie_fake.device import FakeProbe
from sie_fake.memory import MEMORY
from sie_fake.record import RECORD

from sie_core.batching.sharing import admission, scheduler
from sie_core.engine.device import batch_run
from tests.engine.conftest import BOUND_S, bounded, queued, request, sample, until, vectors
from tests.engine.device_time import OVERHEAD_S, PRICE_S, DeviceTime, Model

LARGE = " ".join(["w"] * 40)


@pytest.fixture
def held(monkeypatch):
    """Have each long run that is on the device wait there until it may go on, as the tests' machine may be busy."""
    begun, go_on = threading.Event(), threading.Event()
    compute = FakeAdapter._compute
    monkeypatch.setattr(admission, "SHORT_AGAIN_S", 1e9)
    monkeypatch.setattr(batch_run, "LENT", 1e9)  # however long the short ones take here
    for module in (admission, scheduler):
        monkeypatch.setattr(module, "SHORT_S", BOUND_S)

    def computed(self, rows, cost, *others):
        if cost >= 40:
            begun.set()
            assert go_on.wait(BOUND_S)
        return compute(self, rows, cost, *others)

    monkeypatch.setattr(FakeAdapter, "_compute", computed)
    yield begun, go_on
    go_on.set()


async def long_and_short(engines, held, *, quiet="quiet", priority_stream=True, **options):
    """Ask for a long text, and for a short one of another model while that runs; return the engine and both tasks."""
    begun, _ = held
    long = engines.model("long", max_batch_tokens=8)
    quiet = engines.model(quiet, **options) if quiet != "long" else long
    engine = await engines.start(
        load=[long, quiet, engines.model("old")],
        device="fake",
        priority_stream=priority_stream,
        memory_pressure_threshold_percent=100,
    )
    for text in "abc":
        await bounded(engine.infer(request(long, text)))
        await bounded(engine.infer(request(quiet, text)))
    RECORD.clear()
    running = asyncio.create_task(engine.infer(request(long, LARGE)))
    await until(begun.is_set)
    return engine, running, asyncio.create_task(engine.infer(request(quiet, "short")))


async def test_a_device_that_runs_each_batch_to_its_end_is_given_no_other_beside_it(engines, monkeypatch):
    probed = FakeProbe.devices
    monkeypatch.setattr(
        FakeProbe, "devices", lambda probe: [replace(each, asynchronous=False) for each in probed(probe)]
    )
    engine = await engines.start(device="fake", priority_stream=True)
    assert engine.device.priority_stream is None


async def test_a_short_request_of_another_model_is_answered_while_a_long_batch_runs(engines, held):
    engine, long, short = await long_and_short(engines, held)
    reply = await bounded(short)
    assert not long.done()
    held[1].set()
    whole = await bounded(long)
    alone = [
        await bounded(engine.infer(request(name, text)))
        for name, text in (("test/long", LARGE), ("test/quiet", "short"))
    ]
    for beside, expected in zip((whole, reply), alone, strict=True):
        assert (vectors(beside)[0] == vectors(expected)[0]).all()
    assert engine.health().ready_problem is None


@pytest.mark.parametrize("settings", [{"priority_stream": False}, {"quiet": "long"}])
async def test_it_waits_without_the_setting_and_where_it_asks_the_same_model(engines, held, settings):
    engine, long, short = await long_and_short(engines, held, **settings)
    await until(lambda: queued(engine) == 1)
    held[1].set()
    await bounded(asyncio.gather(long, short))
    assert [run.texts for run in RECORD.runs()] == [(LARGE,), ("short",)]


@pytest.mark.usefixtures("hurried")
async def test_a_short_batch_without_memory_beside_a_long_one_runs_again_after_it_and_nothing_is_evicted(engines, held):
    engine, long, short = await long_and_short(engines, held, run_bytes_per_cost=10_000_000)
    await bounded(short)
    taken = MEMORY.allocate(MEMORY.total - MEMORY.used - 1_000_000)
    again = asyncio.create_task(engine.infer(request("test/quiet", "again")))
    await until(lambda: sample(engine, "sie_batch_failures_total", model="test/quiet", reason="out_of_memory"))
    assert not again.done()
    taken.free()
    held[1].set()
    await bounded(asyncio.gather(long, again))
    assert engine.model("test/old").state == "loaded"
    assert sample(engine, "sie_batch_failures_total", model="test/quiet", reason="out_of_memory") == 1


@pytest.fixture
def device():
    """Give a device in virtual time that was given short ones beside long ones, and two models whose runs it knows."""
    device = DeviceTime(ahead=2, beside=True)
    device.quiet, device.flooded = device.add(Model("quiet")), device.add(Model("flooded"))
    for _ in range(3):
        for model, costs in ((device.quiet, [10]), (device.flooded, [3000]), (device.flooded, [10])):
            device.ask(model, costs)
            run, _ = device.queue.take()
            device.now += OVERHEAD_S + PRICE_S * run.batch.cost
            device.queue.device_done(run)
    device.took = []
    for model in (device.quiet, device.flooded):
        model.metrics.ran = lambda batch, waited, seconds, model=model: device.took.append((model.id, seconds))
    return device


def taken(device):
    run, _ = device.queue.take()
    return run


def long_one(device):
    device.ask(device.quiet, [10])
    device.queue.device_done(taken(device))
    device.took.clear()
    for _ in range(3):
        device.ask(device.flooded, [3000])
    long = taken(device)
    assert long.model is device.flooded
    return long


@pytest.mark.parametrize("ends_first", ["short", "long"])
def test_the_time_of_a_short_batch_beside_a_long_one_is_not_learnt_as_the_long_one_s(device, ends_first):
    long, began = long_one(device), device.now
    device.ask(device.quiet, [10])
    device.now += 0.05
    short = taken(device)
    assert (short.model, short.within) == (device.quiet, long)
    device.now += 0.01
    for run in (short, long) if ends_first == "short" else (long, short):
        device.queue.device_done(run)
        device.queue.done(run)
        device.now += 0.02
    told = dict(device.took)
    assert told["quiet"] == pytest.approx(0.01 if ends_first == "short" else 0.03)
    assert told["flooded"] == pytest.approx(0.07 if ends_first == "short" else 0.06)
    assert began + 0.1 == pytest.approx(device.now)


def test_nothing_else_is_launched_while_a_short_batch_is_beside_a_long_one(device):
    long = long_one(device)
    device.ask(device.quiet, [10])
    short = taken(device)
    device.ask(device.quiet, [10])
    assert taken(device) is None
    device.queue.device_done(long)
    assert taken(device) is None  # the model of the short one must not run twice at once
    device.queue.device_done(short)
    assert taken(device) is not None


def test_a_short_batch_that_fails_beside_a_long_one_leaves_it_the_time(device):
    long = long_one(device)
    device.ask(device.quiet, [10])
    short = taken(device)
    device.now += 0.04
    device.queue.done(short)
    assert long.preempted_s == pytest.approx(0.04)


def test_short_batches_get_a_quarter_of_a_long_one_s_time(device):
    long, beside = long_one(device), 0
    device.ask(device.quiet, [10])
    while (short := taken(device)) is not None:
        device.now += 0.01
        device.queue.device_done(short)
        device.ask(device.quiet, [10])
        beside += 1
    assert long.batch.predicted_s / 4 <= 0.01 * beside <= long.batch.predicted_s / 4 + 0.01


def test_nothing_runs_beside_a_batch_that_lacked_memory(device):
    long = long_one(device)
    long.after_freeing = True
    device.ask(device.quiet, [10])
    assert taken(device) is None


def test_whatever_comes_and_ends_no_model_runs_on_both_streams_at_once_and_everything_runs():
    assert sum(launched_beside(seed) for seed in range(20)) > 100


def launched_beside(seed):
    """Ask three models, begin runs and end them in random order; count the runs that began beside another one."""
    random, device = Random(seed), DeviceTime(ahead=2, beside=True)
    models, there, beside = [device.add(Model(name)) for name in "abc"], [], 0
    for step in range(900):
        device.now += random.choice((0.0, 0.001, 0.01))
        if step < 600 and random.random() < 0.4:
            device.ask(random.choice(models), random.choice(([10], [10], [3000], [1000] * 4)))
        elif there and (len(there) > 1 or random.random() < 0.6):
            run = there.pop(random.randrange(len(there)))
            if random.random() < 0.9:  # else its forward pass failed
                device.queue.device_done(run)
            device.queue.done(run)
        if (run := taken(device)) is not None:
            assert len(there) < 2
            assert all(each.within is None for each in there)
            assert run.within is None or (there == [run.within] and run.model is not run.within.model)
            beside += run.within is not None
            there.append(run)
    assert device.scheduler.queued_units == 0
    return beside
