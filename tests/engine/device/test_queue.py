"""What waits for the device: how much of each model, since when, and for how long it then runs."""

import asyncio
import threading
import time

import pytest
from sie_fake.adapter import FakeAdapter
from sie_fake.record import RECORD

from sie_core.contracts import InferenceError, Unit
from sie_core.engine.device.batch_run import Run
from sie_core.engine.device.worker import QUICK_S
from sie_core.engine.requests.inflight import FlightUnit
from tests.engine.conftest import BOUND_S, bounded, queued, request, sample, until
from tests.engine.device_time import Asked, DeviceTime, Model

LARGE = " ".join(["w"] * 40)


async def test_a_client_that_floods_the_queue_keeps_no_other_from_its_share_of_it(engines):
    hold = engines.hold()
    flooded, quiet = engines.model("flooded", run_hold=str(hold)), engines.model("quiet")
    engine = await engines.start(load=[flooded, quiet], max_queued_cost=100)
    tasks = [asyncio.create_task(engine.infer(request(flooded, "first", client="flood")))]
    await until(lambda: RECORD.runs(flooded))
    tasks += [asyncio.create_task(engine.infer(request(flooded, LARGE, client="flood"))) for _ in range(2)]
    await until(lambda: queued(engine) == 2)
    with pytest.raises(InferenceError, match=r"80 cost units are queued, 80 of them for .*; 40 more exceed"):
        await bounded(engine.infer(request(flooded, LARGE, client="flood")))
    for number, (model, client) in enumerate([(quiet, "flood"), (quiet, "other"), (flooded, "other")]):
        tasks.append(asyncio.create_task(engine.infer(request(model, "few words", client=client))))
        await until(lambda number=number: queued(engine) == 3 + number)
    with pytest.raises(InferenceError, match="SIE_MAX_QUEUED_COST=100"):
        await bounded(engine.infer(request(quiet, LARGE, client="other")))
    hold.off()
    assert len(await bounded(asyncio.gather(*tasks))) == 6


def test_units_are_queued_at_times_that_do_not_decrease_whoever_was_prepared_first():
    device = DeviceTime()
    model = device.add(Model())
    device.queue._clock = time.monotonic
    units = []
    for _ in range(3):
        asked, unit = Asked(model, 0.0, None, 1), Unit(0, 1, "key", payload=None)
        units.append(FlightUnit(unit, asked, index=0, made=unit))
        device.queue.submit(asked, units[-1:])
    times = [unit.enqueued_at for unit in units]
    assert times[0] > 0
    assert times == sorted(times)


def test_nothing_is_launched_behind_a_batch_until_more_waits_than_the_next_one_takes():
    device = DeviceTime(ahead=2)
    model = device.add(Model(run_s=None))
    for costs in ([10], [10] * 64, [1000] * 4):
        device.ask(model, costs)
        device.run_all()
    device.ask(model, [10])
    running = device.queue.take()
    device.ask(model, [10])
    assert device.queue.take() is None
    for _ in range(70):
        device.ask(model, [10])
    ahead = device.queue.take()
    assert len(ahead.units) == 64
    assert device.queue.take() is None
    device.queue.device_done(running)
    assert device.queue.take() is None
    device.queue.device_done(ahead)
    assert len(device.queue.take().units) == 7


def test_a_part_of_a_failed_batch_is_not_preempted():
    device = DeviceTime(layers=12)
    model = device.add(Model())
    for costs in ([10], [2000], [10]):
        device.ask(model, costs)
        device.ask(model, [10])
        device.run_all()
    device.ask(model, [2000])
    device.ask(model, [10])
    short = device.queue.take()
    device.queue.device_done(short)
    whole = device.queue.take()
    assert whole.batch.preemptible
    device.ask(model, [10])
    device.queue.done(whole)
    device.queue.retry(Run(model, whole.batch))
    part = device.queue.take()
    assert part.given is None
    assert device.queue.preempting(part) is None
    device.queue.device_done(part)
    assert device.queue.take().given


def test_what_is_kept_back_behind_a_run_goes_once_that_should_have_ended():
    device = DeviceTime(ahead=2)
    model = device.add(Model())
    for costs in ([10], [1000]):
        device.ask(model, costs)
        device.run_all()
    device.ask(model, [10])
    assert device.queue.take()
    device.ask(model, [10])
    assert device.queue.take() is None
    device.now += 0.1
    assert device.queue.take()


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


def test_a_batch_of_which_units_are_left_out_is_off_the_device_with_its_run():
    device = DeviceTime()
    model = device.add(Model())
    asked = [device.ask(model, [10], key="k") for _ in range(2)]
    run = device.queue.take()
    while run is not None:
        asked[0].settled = True
        run.leave_out_settled()
        device.queue.device_done(run)
        device.queue.done(run)
        run = device.queue.take()
    assert not device.scheduler._scheduler._running
