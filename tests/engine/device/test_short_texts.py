"""A short text is prepared by the device's own thread while nothing else is at work."""

import threading
import time
from functools import partial
from types import SimpleNamespace

import pytest
from sie_fake.adapter import FakeAdapter

from sie_core.contracts import Device, Item, Media, Unit
from sie_core.engine.device.worker import DeviceWorker
from sie_core.engine.pipeline import slices
from sie_core.engine.requests.inflight import FlightUnit
from tests.engine.conftest import BOUND_S, bounded, request, until
from tests.engine.device_time import Asked, DeviceTime, Model


@pytest.fixture
def preparing(monkeypatch):
    """List the thread of every preparation, which counts as quick however long it took."""
    threads, prepare = [], FakeAdapter.prepare
    monkeypatch.setattr(slices, "QUICK_S", BOUND_S)
    monkeypatch.setattr(
        FakeAdapter, "prepare", lambda *call: threads.append(threading.current_thread().name) or prepare(*call)
    )
    return threads


async def test_the_devices_thread_prepares_a_short_text_and_nothing_else(engines, preparing):
    model = engines.model("model", inputs=("text", "image"))
    engine = await engines.start(load=[model])

    async def infer(*texts: str, images: tuple[Media, ...] = (), instruction: str | None = None) -> str:
        items = [Item(text=text, images=images) for text in texts]
        asked = request(model, items=items, instruction=instruction)
        assert len((await bounded(engine.infer(asked))).items) == len(texts)
        return preparing[-1].rpartition("-")[0]

    assert await infer("first") == "sie-prepare"
    started = time.monotonic()
    while await infer("short") != "sie-device":
        assert time.monotonic() < started + BOUND_S
    for _ in range(3):
        assert await infer("x" * (slices.SHORT + 1)) == "sie-prepare"
        assert await infer("a", "b") == "sie-prepare"
        assert await infer("a", images=(Media(b"picture"),)) == "sie-image"
        assert await infer("a", instruction="x" * slices.SHORT) == "sie-prepare"


async def test_a_model_whose_last_text_took_long_is_prepared_by_other_threads(engines, preparing, monkeypatch):
    monkeypatch.setattr(slices, "QUICK_S", 0.0)
    model = engines.model("model")
    engine = await engines.start(load=[model])
    for _ in range(5):
        assert len((await bounded(engine.infer(request(model, "short")))).items) == 1
    assert {name.rpartition("-")[0] for name in preparing} == {"sie-prepare"}


@pytest.fixture
def worker():
    """Give the worker of a device, not started, and a model."""
    at_once = SimpleNamespace(submit=lambda call, *arguments, quick=False: call(*arguments))
    device = DeviceTime()
    made = DeviceWorker(Device("cpu"), device.scheduler, at_once, None, None, lambda lost: None, stall_s=0.05)
    model = Model()
    made.queue.add_model(model)
    yield made, model
    assert made.close(BOUND_S)


async def test_a_preparation_that_hangs_turns_liveness_red_and_one_that_raises_ends_nothing(worker, caplog):
    (made, _), queue = worker, worker[0].queue
    began, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        assert go_on.wait(BOUND_S)
        raise RuntimeError("beyond its own handling")

    made.start()
    await until(partial(queue.call_if_idle, hang))
    await until(began.is_set)
    assert not queue.call_if_idle(hang)
    await until(made.health.problem)
    assert made.health.problem().startswith("a request has been prepared for")
    go_on.set()
    await until(partial(queue.call_if_idle, lambda: None))
    await until(lambda: made.health.problem() is None)
    assert "failed beyond its own handling" in caplog.text
    assert made.close(BOUND_S)
    assert not queue.call_if_idle(hang)


def test_a_device_whose_thread_does_not_wait_or_has_work_makes_no_call(worker):
    made, model = worker[0].queue, worker[1]
    assert not made.call_if_idle(lambda: None)
    asked, unit = Asked(model, 0.0, None, 1), Unit(0, 1, "key", payload=None)
    made._idle = True  # its thread was woken by the unit, and has not gone on yet
    made.submit(asked, [FlightUnit(unit, asked, index=0, made=unit)])
    assert not made.call_if_idle(lambda: None)


def test_a_scheduler_that_hangs_holds_up_nobody_who_asks_for_a_call(worker, monkeypatch):
    made, model = worker[0].queue, worker[1]
    scheduler = made._scheduler
    hangs, go_on, answered = threading.Event(), threading.Event(), threading.Event()
    monkeypatch.setattr(scheduler, "add", lambda *_: hangs.set() or go_on.wait(BOUND_S))
    threading.Thread(target=made.submit, args=(Asked(model, 0.0, None, 1), []), daemon=True).start()
    assert hangs.wait(BOUND_S)

    def ask() -> None:
        assert not made.call_if_idle(lambda: None)
        answered.set()

    threading.Thread(target=ask, daemon=True).start()
    try:
        assert answered.wait(BOUND_S / 10)
    finally:
        go_on.set()
