"""Room for a load: who is unloaded, who stays, what is measured and shown. Fakes on an emulated gigabyte."""

import asyncio
import dataclasses
import threading
import time

import pytest
from sie_fake.adapter import FakeAdapter
from sie_fake.device import FakeProbe
from sie_fake.memory import MEMORY
from sie_fake.record import RECORD

from sie_core.contracts import InferenceError, Room
from sie_core.engine.timeouts import Timeouts
from sie_core.memory import LeastRecentlyUsed
from tests.engine.conftest import bounded, idle, request, sample, until

MB = 1_000_000


async def serve(engine, *models):
    """Ask each of the models in turn; none is in use any more when the next one is asked."""
    for model in models:
        assert len((await bounded(engine.infer(request(model, f"to {model}")))).items) == 1
        await idle(engine)


def loaded(engine):
    return {info.id for info in engine.models() if info.state == "loaded"}


def evictions(engine, model, reason="load"):
    return sample(engine, "sie_model_evictions_total", model=model, reason=reason)


async def test_the_longest_unused_model_makes_room_for_the_next(engines, hurried):
    a, b, c = (engines.model(name, memory_bytes=100 * MB) for name in "abc")
    engine = await engines.start(device="fake", memory_limit_bytes=300 * MB)
    await serve(engine, a, b, a, c)
    assert loaded(engine) == {a, c}
    assert MEMORY.used == 200 * MB
    assert [evictions(engine, model) for model in (a, b, c)] == [0, 1, 0]


async def test_use_never_exceeds_the_limit_while_many_models_take_turns(engines, hurried):
    models = [engines.model(f"m{number}", memory_bytes=90 * MB) for number in range(12)]
    engine = await engines.start(device="fake", memory_limit_bytes=450 * MB)
    await serve(engine, models[0])
    MEMORY.peak = 0
    await serve(engine, *models, *models[::-1])
    assert MEMORY.peak <= 4 * 90 * MB


async def test_what_a_load_cost_is_measured_and_shown_with_the_last_use(engines):
    model, other = engines.model("a", memory_bytes=100 * MB), engines.model("b")
    engine = await engines.start(device="fake", load=[model], pinned_models=(model,))
    info = engine.model(model)
    assert (info.memory_bytes, info.last_used_at, info.pinned) == (100 * MB, None, True)
    assert sample(engine, "sie_model_memory_bytes", model=model) == 100 * MB
    assert sample(engine, "sie_device_memory_used_bytes") == 100 * MB
    before = time.time()
    await serve(engine, model)
    assert before - 0.1 <= engine.model(model).last_used_at <= time.time() + 0.1
    await bounded(engine.unload(model))
    info = engine.model(model)
    assert (info.state, info.memory_bytes) == ("available", 100 * MB)
    assert info.last_used_at is not None
    assert (engine.model(other).memory_bytes, engine.model(other).pinned) == (None, False)


async def test_a_pinned_model_is_listed_as_such_before_anybody_asks_for_it(engines):
    pinned, other = engines.model("pinned"), engines.model("other")
    engine = await engines.start(pinned_models=(pinned,))
    assert {info.id: info.pinned for info in engine.models() if info.id in (pinned, other)} == {
        pinned: True,
        other: False,
    }


async def test_a_pinned_model_stays_and_one_that_cannot_fit_beside_it_is_refused(engines, hurried):
    pinned = engines.model("pinned", memory_bytes=200 * MB)
    small, large = engines.model("small", memory_bytes=90 * MB), engines.model("large", memory_bytes=200 * MB)
    engine = await engines.start(device="fake", memory_limit_bytes=350 * MB, pinned_models=(pinned,), idle_evict_s=0.01)
    await serve(engine, large, pinned, small)
    assert loaded(engine) == {pinned, small}
    with pytest.raises(InferenceError) as caught:
        await serve(engine, large)
    assert caught.value.details["error_class"] == "OOM"
    assert "it takes about 191 MiB, and of 334 MiB 57 are free" in caught.value.message
    await serve(engine, pinned)
    assert len(RECORD.events(pinned, "load")) == 1


async def wanting_the_place_of_a_busy_one(engines):
    """Ask for a model that fits only without one whose request is held."""
    hold = engines.hold()
    busy = engines.model("busy", memory_bytes=200 * MB, run_hold=str(hold))
    other = engines.model("other", memory_bytes=200 * MB)
    engine = await engines.start(device="fake", memory_limit_bytes=300 * MB, load=[busy])
    running = asyncio.create_task(engine.infer(request(busy, "running")))
    await until(lambda: RECORD.runs(busy))
    waiting = asyncio.create_task(engine.infer(request(other, "waiting")))
    await until(lambda: engine.model(busy).state == "unloading")
    return engine, hold, busy, other, running, waiting


async def test_a_model_in_use_makes_room_once_its_requests_are_answered(engines, hurried):
    engine, hold, busy, other, running, waiting = await wanting_the_place_of_a_busy_one(engines)
    late = asyncio.create_task(engine.infer(request(busy, "late")))
    await asyncio.sleep(0)
    assert not RECORD.events(busy, "unload")
    hold.off()
    for reply in await bounded(asyncio.gather(running, waiting, late)):
        assert len(reply.items) == 1
    kinds = [(event.kind, event.model) for event in RECORD.events() if event.kind != "run"]
    assert kinds == [("unload", busy), ("load", other), ("unload", other), ("load", busy)]


async def test_a_client_that_does_not_wait_is_told_to_retry_while_a_model_is_evicted_and_its_retry_loads_it(
    engines, hurried
):
    engine, hold, busy, _, running, waiting = await wanting_the_place_of_a_busy_one(engines)
    for _ in range(2):
        with pytest.raises(InferenceError) as caught:
            await engine.infer(request(busy, "late", load_wait_s=0.0))
        assert (caught.value.code, caught.value.retry_after_s > 0) == ("MODEL_LOADING", True)
    hold.off()
    await bounded(asyncio.gather(running, waiting))
    with pytest.raises(InferenceError) as caught:
        await engine.infer(request(busy, "again", load_wait_s=0.0))
    assert caught.value.code == "MODEL_LOADING"
    await until(lambda: engine.model(busy).state == "loaded")


async def test_a_model_that_stays_in_use_for_too_long_is_passed_over(engines, hurried):
    hold = engines.hold()
    busy = engines.model("busy", memory_bytes=200 * MB, run_hold=str(hold))
    other = engines.model("other", memory_bytes=200 * MB)
    engine = await engines.start(device="fake", memory_limit_bytes=300 * MB, timeouts=Timeouts(drain_s=0.05))
    await serve(engine, other)
    await bounded(engine.load(busy))
    running = asyncio.create_task(engine.infer(request(busy, "running")))
    await until(lambda: RECORD.runs(busy))
    with pytest.raises(InferenceError) as caught:
        await serve(engine, other)
    assert caught.value.details["error_class"] == "OOM"
    assert engine.model(busy).state == "loaded"
    hold.off()
    assert len((await bounded(running)).items) == 1


async def test_two_clients_of_models_that_do_not_fit_together_share_a_bounded_number_of_loads(engines):
    a, b = (engines.model(name, memory_bytes=200 * MB, load_s=0.1) for name in "ab")
    engine = await engines.start(device="fake", memory_limit_bytes=300 * MB)

    async def client(model):
        for _ in range(100):
            await serve(engine, model)

    started = time.monotonic()
    await asyncio.gather(client(a), client(b))
    took = time.monotonic() - started
    loads = len(RECORD.events(kind="load"))
    assert 2 <= loads <= 2 + took / 0.2  # each stays at least as long as its load took
    assert loads < 100


async def test_all_who_wait_for_models_that_do_not_fit_together_are_answered_with_one_load_of_each(engines):
    a, b, c = models = [engines.model(name, memory_bytes=200 * MB) for name in "abc"]
    engine = await engines.start(device="fake", memory_limit_bytes=300 * MB)
    MEMORY.peak = 0
    waiting = [engine.infer(request(model, f"text {number}")) for number in range(30) for model in models]
    assert [len(reply.items) for reply in await bounded(asyncio.gather(*waiting))] == [1] * 90
    assert [len(RECORD.events(model, "load")) for model in (a, b, c)] == [1, 1, 1]
    assert MEMORY.peak <= 300 * MB


async def test_an_idle_model_with_a_request_under_way_stays_until_it_is_answered(engines, hurried, monkeypatch):
    looks, relieve = [], LeastRecentlyUsed.relieve
    monkeypatch.setattr(LeastRecentlyUsed, "relieve", lambda *asked: looks.append(asked[2]) or relieve(*asked))
    hold = engines.hold()
    model = engines.model("held", run_hold=str(hold))
    engine = await engines.start(device="fake", load=[model], idle_evict_s=0.01, timeouts=Timeouts(monitor_s=0.005))
    running = asyncio.create_task(engine.infer(request(model, "text")))
    await until(lambda: RECORD.runs(model))
    looks.clear()
    await until(lambda: len(looks) > 10)
    assert {held.uses > 0 for models in looks for held in models} == {True}
    assert engine.model(model).state == "loaded"
    hold.off()
    assert len((await bounded(running)).items) == 1
    await until(lambda: engine.model(model).state == "available")
    assert [event.kind for event in RECORD.events(model)] == ["run", "unload"]


async def test_requests_and_evictions_that_race_lose_no_request_and_leave_one_model_at_most(engines, hurried):
    models = [engines.model(name, memory_bytes=200 * MB) for name in "abc"]
    engine = await engines.start(
        device="fake", memory_limit_bytes=300 * MB, idle_evict_s=0.001, timeouts=Timeouts(monitor_s=0.001)
    )
    MEMORY.peak = 0

    async def client(number):
        for turn in range(15):
            await serve(engine, models[(number + turn) % 3])

    await bounded(asyncio.gather(*(client(number) for number in range(8))))
    assert MEMORY.peak <= 200 * MB
    await until(lambda: MEMORY.used == 0)
    assert not loaded(engine)


async def test_idle_models_are_unloaded_in_the_background_and_load_again(engines, hurried):
    model, pinned = engines.model("a", memory_bytes=100 * MB), engines.model("pinned")
    engine = await engines.start(
        device="fake", idle_evict_s=0.05, pinned_models=(pinned,), timeouts=Timeouts(monitor_s=0.01)
    )
    await serve(engine, pinned, model)
    await until(lambda: evictions(engine, model, "background") == 1)
    assert (engine.model(model).state, MEMORY.used) == ("available", 0)
    await serve(engine, model)
    assert engine.model(pinned).state == "loaded"


async def test_pressure_from_elsewhere_is_relieved_in_the_background(engines, hurried):
    a, b = (engines.model(name, memory_bytes=100 * MB) for name in "ab")
    engine = await engines.start(device="fake", memory_limit_bytes=300 * MB, timeouts=Timeouts(monitor_s=0.01))
    await serve(engine, a, b)
    elsewhere = MEMORY.allocate(80 * MB)
    try:
        await until(lambda: evictions(engine, a, "background") == 1)
    finally:
        elsewhere.free()
    assert loaded(engine) == {b}


async def test_a_load_that_runs_out_of_memory_unloads_another_model_and_is_tried_once_more(engines, hurried):
    other, model = engines.model("other"), engines.model("short-once", load_failure="OOM", load_failure_times=1)
    engine = await engines.start(device="fake")
    await serve(engine, other, model)
    assert loaded(engine) == {model}
    assert evictions(engine, other, "out_of_memory") == 1
    assert sample(engine, "sie_model_loads_total", model=model, outcome="ok") == 1


async def test_a_load_that_runs_out_of_memory_twice_fails_and_the_next_models_load(engines, hurried):
    other, model = engines.model("other"), engines.model("large", load_failure="OOM")
    engine = await engines.start(device="fake")
    await serve(engine, other)
    with pytest.raises(InferenceError) as caught:
        await serve(engine, model)
    assert caught.value.details == {"error_class": "OOM", "permanent": False, "attempts": 1}
    await serve(engine, other)
    assert engine.health().live_problem is None


async def test_an_adapter_that_hangs_in_unload_holds_up_no_load(engines, hurried, monkeypatch, caplog):
    release, unload = threading.Event(), FakeAdapter.unload

    def hang(adapter):
        release.wait(60)
        unload(adapter)

    a, b = (engines.model(name, memory_bytes=100 * MB) for name in "ab")
    engine = await engines.start(device="fake", memory_limit_bytes=240 * MB, timeouts=Timeouts(unload_s=0.05))
    await serve(engine, a, b)
    monkeypatch.setattr(FakeAdapter, "unload", hang)
    try:
        assert await bounded(engine.unload(a))
        assert "left behind" in caplog.text
        await serve(engine, b)
    finally:
        release.set()
    monkeypatch.setattr(FakeAdapter, "unload", unload)
    await until(lambda: MEMORY.used == 100 * MB)
    await serve(engine, a)


class Broken(LeastRecentlyUsed):
    """A manager that raises whatever it is asked."""

    def make_room(self, *asked):
        raise RuntimeError("broken")

    relieve = out_of_memory = make_room


class Stubborn(LeastRecentlyUsed):
    """A manager that names models that must not go, or are not there."""

    def make_room(self, wanted, memory, models, now):
        pinned = [model.id for model in models if model.pinned]
        return Room(evict=pinned[0]) if pinned else Room()

    def relieve(self, memory, models, now):
        return ["test/nowhere", *(model.id for model in models if model.pinned)]


@pytest.mark.parametrize("manager", [Broken, Stubborn])
async def test_a_bad_memory_manager_stops_no_load_and_unloads_nothing_pinned(engines, manager, monkeypatch):
    name = f"short-{manager.__name__}"
    pinned, model = engines.model("pinned"), engines.model(name, load_failure="OOM", load_failure_times=1)
    engine = await engines.start(
        lambda plugins: dataclasses.replace(plugins, memory_managers={"lru": manager}),
        device="fake",
        pinned_models=(pinned,),
        timeouts=Timeouts(monitor_s=0.01),
    )
    await serve(engine, pinned)
    with pytest.raises(InferenceError):
        await serve(engine, model)
    await asyncio.sleep(0.05)
    await bounded(engine.load(model))
    await serve(engine, pinned, model)
    assert len(RECORD.events(pinned, "load")) == 1


async def test_a_probe_that_cannot_measure_costs_nothing(engines, monkeypatch, caplog):
    def fail(probe, device):
        raise RuntimeError("the driver is gone")

    monkeypatch.setattr(FakeProbe, "memory", fail)
    monkeypatch.setattr(FakeProbe, "free_caches", fail)
    model = engines.model("model")
    engine = await engines.start(device="fake", load=[model])
    await serve(engine, model)
    assert "cannot measure" in caplog.text
    assert engine.health().live_problem is None


async def test_a_probe_that_hangs_holds_up_no_load(engines, monkeypatch, caplog):
    release, memory = threading.Event(), FakeProbe.memory
    model = engines.model("model")
    engine = await engines.start(device="fake", timeouts=Timeouts(measure_s=0.05))
    monkeypatch.setattr(FakeProbe, "memory", lambda probe, device: release.wait(60) and memory(probe, device))
    try:
        await serve(engine, model)
        assert "could not be measured" in caplog.text
    finally:
        release.set()
    assert engine.health().live_problem is None


async def test_measurements_do_not_pile_up_behind_one_that_hangs(engines, monkeypatch):
    release, begun, memory = threading.Event(), [], FakeProbe.memory
    models = [engines.model(f"m{number}") for number in range(3)]
    engine = await engines.start(device="fake", timeouts=Timeouts(measure_s=0.02, monitor_s=0.01))

    def hang(probe, device):
        begun.append(device)
        return release.wait(60) and memory(probe, device)

    monkeypatch.setattr(FakeProbe, "memory", hang)
    try:
        await serve(engine, *models)
        assert len(begun) == 1
        assert engine.status().stages["measure"].waiting <= 2  # a load's and the monitor's, whose time is not over yet
    finally:
        release.set()
