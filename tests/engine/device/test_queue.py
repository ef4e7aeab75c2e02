"""What waits for the device: how much of each model, since when, and for how long it then runs."""

import asyncio
import threading
import time
from dataclasses import dataclass

import pytest
from sie_core.batching.sharing.scheduler import Scheduler
from sie_fake.adapter import FakeAdapter
from sie_fake.record import RECORD

from sie_core.batching import BatchFormer
from sie_core.contracts import BatchLimits, InferenceError, Unit
from sie_core.engine.device.health import DeviceHealth
from sie_core.engine.device.on_device import OnDevice
from sie_core.engine.device.queue import DeviceQueue
from sie_core.engine.device.worker import QUICK_S
from sie_core.engine.requests.inflight import FlightUnit
from tests.engine.conftest import BOUND_S, bounded, queued, request, sample, until

LARGE = " ".join(["w"] * 40)


async def test_a_flooded_model_keeps_no_other_from_its_share_of_the_queue(engines):
    hold = engines.hold()
    flooded, quiet = engines.model("flooded", run_hold=str(hold)), engines.model("quiet")
    engine = await engines.start(load=[flooded, quiet], max_queued_cost=100)
    tasks = [asyncio.create_task(engine.infer(request(flooded, "first")))]
    await until(lambda: RECORD.runs(flooded))
    tasks += [asyncio.create_task(engine.infer(request(flooded, LARGE))) for _ in range(2)]
    await until(lambda: queued(engine) == 2)
    with pytest.raises(InferenceError, match=r"80 cost units are queued, 80 of them for .*; 40 more exceed"):
        await bounded(engine.infer(request(flooded, LARGE)))
    tasks.append(asyncio.create_task(engine.infer(request(quiet, LARGE))))
    await until(lambda: queued(engine) == 3)
    tasks.append(asyncio.create_task(engine.infer(request(quiet, "within its half"))))
    await until(lambda: queued(engine) == 4)
    with pytest.raises(InferenceError, match="43 of them for test/quiet; 40 more exceed"):
        await bounded(engine.infer(request(quiet, LARGE)))
    hold.off()
    assert len(await bounded(asyncio.gather(*tasks))) == 5


@dataclass(eq=False)
class Queue:
    """What a scheduler sees of a loaded model."""

    id: str
    policy: BatchFormer


def test_units_are_queued_at_times_that_do_not_decrease_whoever_was_prepared_first():
    limits = BatchLimits(max_cost=1, max_requests=1, max_run_s=None, max_wait_s=0.0)
    model = Queue("test/model", BatchFormer(limits))
    health = DeviceHealth(60.0, time.monotonic)
    on_device = OnDevice(1, health.unfinished)
    queue = DeviceQueue(Scheduler(100), health, lambda lost: None, time.monotonic, on_device)
    queue.add_model(model)
    now = time.monotonic()
    for prepared in (now, now - 1.0, now - 0.5):
        unit = Unit(0, 1, "key", None)
        queue.submit(model, [FlightUnit(unit, object(), prepared, index=0, made=unit)])
    times = [model.policy.take(now, False).units[0].enqueued_at for _ in range(3)]
    assert times == sorted(times)


@pytest.mark.parametrize("shows", [True, False])
async def test_a_run_ends_when_the_device_is_done_and_not_when_its_outputs_are_finished(engines, monkeypatch, shows):
    finishing, finish = threading.Event(), FakeAdapter.finish
    monkeypatch.setattr(FakeAdapter, "finish", lambda *call: finishing.wait(BOUND_S) and finish(*call))
    if not shows:  # a family that cannot tell
        monkeypatch.delattr(FakeAdapter, "await_device")
    model = engines.model("model")
    engine = await engines.start(device="fake", load=[model])
    asked = asyncio.create_task(engine.infer(request(model, "text")))
    await until(lambda: RECORD.runs(model))
    if shows:
        await until(lambda: sample(engine, "sie_batches_total", model=model) == 1)
    assert not asked.done()
    finishing.set()
    assert len((await bounded(asked)).items) == 1
    assert sample(engine, "sie_batches_total", model=model) == 1


async def test_quick_outputs_of_one_unit_are_finished_by_the_devices_thread_and_slow_ones_beside_it(
    engines, monkeypatch
):
    threads, slow, finish = [], threading.Event(), FakeAdapter.finish

    def noted(adapter, units, raw):
        threads.append(threading.current_thread().name)
        if slow.is_set():
            time.sleep(10 * QUICK_S)
        return finish(adapter, units, raw)

    monkeypatch.setattr(FakeAdapter, "finish", noted)
    model = engines.model("model")
    engine = await engines.start(load=[model])

    async def by_device() -> bool:
        await bounded(engine.infer(request(model, "text")))
        return threads[-1].startswith("sie-device")

    for _ in range(100):  # the first is not: nothing is known of it, and a busy machine makes others slow
        if await by_device():
            break
    else:
        raise AssertionError("outputs are never finished by the thread of the device")
    slow.set()
    await by_device()  # it may be once more
    assert not await by_device()
