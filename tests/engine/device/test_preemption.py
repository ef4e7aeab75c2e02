"""A batch of short requests runs in the middle of a long one, which gets the same answer a little later."""

from __future__ import annotations

import asyncio
import threading
from math import inf
from types import SimpleNamespace

import pytest
from sie_fake.adapter import FakeAdapter
from sie_fake.record import RECORD

from sie_core.batching import scheduler
from sie_core.contracts import Device, InvalidInput, preemption_point
from sie_core.engine.device import worker
from sie_core.engine.device.worker import DeviceWorker, work_s
from tests.engine.conftest import BOUND_S, bounded, queued, request, until, vectors
from tests.engine.device_time import OVERHEAD_S, PRICE_S, DeviceTime, Model

LARGE = " ".join(["w"] * 40)
CRASHES = {"crash_text": "short"}


@pytest.fixture
def halfway(monkeypatch):
    """Have each run of the large request stop halfway until it may go on, and then be preempted if it can be."""
    begun, go_on = threading.Event(), threading.Event()
    run = FakeAdapter.run
    for name, value in (("AGAIN_S", 1e9), ("PREEMPTIBLE_S", 0.0), ("PREEMPTED", 1e9)):  # however busy the machine is
        monkeypatch.setattr(scheduler, name, value)

    def in_two_parts(self, units):
        if sum(unit.cost for unit in units) >= 40 and (point := preemption_point()) is not None:
            begun.set()
            assert go_on.wait(BOUND_S)
            point()
        return run(self, units)

    monkeypatch.setattr(FakeAdapter, "run", in_two_parts)
    return begun, go_on


async def large_and_short(engines, halfway, model, **fields):
    """Ask for a large text, and for a short one while it runs; return the engine and both tasks."""
    begun, go_on = halfway
    engine = await engines.start(load=[model])
    await bounded(asyncio.gather(*(engine.infer(request(model, text)) for text in "abc")))
    RECORD.clear()
    large = asyncio.create_task(engine.infer(request(model, LARGE)))
    await until(begun.is_set)
    short = asyncio.create_task(engine.infer(request(model, "short", **fields)))
    await until(lambda: queued(engine) == 1)
    go_on.set()
    return engine, large, short


async def test_a_short_request_preempts_a_large_one_and_both_are_answered(engines, halfway):
    model = engines.model("model", max_batch_tokens=8)
    engine, large, short = await large_and_short(engines, halfway, model)
    replies = await bounded(asyncio.gather(large, short))
    assert [run.texts for run in RECORD.runs(model)] == [("short",), (LARGE,)]
    alone = [await bounded(engine.infer(request(model, text))) for text in (LARGE, "short")]
    for reply, expected in zip(replies, alone, strict=True):
        assert (vectors(reply)[0] == vectors(expected)[0]).all()
    assert len(RECORD.runs(model)) == 4
    assert engine.health().ready_problem is None


async def test_the_thread_of_the_device_answers_who_preempts_before_the_large_run_goes_on_though_others_wait(
    engines, halfway, monkeypatch
):
    finished, finish = {}, FakeAdapter.finish

    def noted(adapter, units, raw):
        finished[RECORD.runs(model)[-1].texts] = threading.current_thread().name
        return finish(adapter, units, raw)

    monkeypatch.setattr(FakeAdapter, "finish", noted)
    monkeypatch.setattr(worker, "QUICK_S", inf)  # however busy the machine is
    begun, go_on = halfway
    model = engines.model("model", max_batch_tokens=8)
    engine = await engines.start(load=[model])
    await bounded(asyncio.gather(*(engine.infer(request(model, text)) for text in "abc")))
    RECORD.clear()
    asked = [asyncio.create_task(engine.infer(request(model, LARGE)))]
    await until(begun.is_set)
    asked += [asyncio.create_task(engine.infer(request(model, text))) for text in ("short", f"{LARGE} too")]
    await until(lambda: queued(engine) == 2)
    go_on.set()
    await bounded(asyncio.gather(*asked))
    assert finished[("short",)].startswith("sie-device")


async def test_a_short_request_that_fails_harms_not_the_large_one_it_preempts(engines, halfway):
    model = engines.model("model", max_batch_tokens=8)
    _, large, short = await large_and_short(engines, halfway, model, options=CRASHES)
    failed, reply = await bounded(asyncio.gather(short, large, return_exceptions=True))
    assert failed.code == "INFERENCE_ERROR"
    assert len(reply.items) == 1


async def test_a_device_that_is_lost_meanwhile_answers_both(engines, halfway):
    model = engines.model("model", max_batch_tokens=8)
    engine, large, short = await large_and_short(engines, halfway, model, options={"lost_text": "short"})
    failures = await bounded(asyncio.gather(short, large, return_exceptions=True))
    assert {getattr(failure, "code", None) for failure in failures} <= {"QUEUE_UNAVAILABLE", None}
    assert "lost" in (engine.health().ready_problem or "")


async def test_nothing_preempts_where_nobody_else_comes(engines, halfway):
    begun, _ = halfway
    model = engines.model("model", max_batch_tokens=8)
    engine = await engines.start(load=[model])
    for text in ("a", LARGE):
        assert len((await bounded(engine.infer(request(model, text)))).items) == 1
    assert not begun.is_set()


class Layers(Model):
    """A model whose long runs are of several layers, in virtual time; what happens at each is the test's."""

    def __init__(self, device: DeviceTime) -> None:
        super().__init__("test/model")
        self.device, self.adapter, self.finish_s, self.failures = device, self, inf, 0
        self.at_layer, self.layer_s, self.ran, self.fails = [], 0.02, [], False
        self.metrics.ran = lambda batch, waited, seconds: self.ran.append((batch.preemptible, seconds))
        self.metrics.failed_batches = SimpleNamespace(inc=lambda: None)

    def run(self, units):
        point = preemption_point()
        for layer in self.at_layer if point is not None else ():
            self.device.now += self.layer_s
            layer()
            point()
        self.device.now += OVERHEAD_S + PRICE_S * sum(unit.cost for unit in units)
        if self.fails and point is None:
            raise InvalidInput("this short request fails")

    def finish(self, units, raw):
        assert preemption_point() is None
        return units


@pytest.fixture
def layers(monkeypatch):
    """Give a device's worker without a thread, in virtual time, and a model that knows how long its runs take."""
    device = DeviceTime()
    monkeypatch.setattr(scheduler, "PREEMPTED", 1e9)
    at_once = SimpleNamespace(submit=lambda call, *arguments, quick=False: call(*arguments), busy=False)
    settle = lambda run, outputs: [setattr(unit.request, "settled", True) for unit in run.units]  # noqa: E731
    worker = DeviceWorker(
        Device("cpu"), device.scheduler, at_once, settle, None, lambda lost: None, stall_s=1.0, clock=lambda: device.now
    )
    device.queue = worker.queue
    model = device.add(Layers(device))
    for costs in ([10], [2000], [10], [2000], [10]):
        device.ask(model, costs)
        device.ask(model, [10])
        while device.scheduler.queued_units:
            worker.step()
    model.ran.clear()
    return device, worker, model


def test_a_run_that_short_ones_preempt_for_long_does_not_count_as_hung(layers):
    device, worker, model = layers
    problems = []

    def layer() -> None:
        problems.append(worker.health.problem())
        device.ask(model, [10])

    model.at_layer, model.layer_s = [layer] * 1000, 0.0
    device.ask(model, [2000])
    begun = device.now
    worker.step()
    assert device.now - begun > 2  # above 1 s, and above ten times what was predicted
    assert set(problems) == {None}


@pytest.mark.parametrize("fails", [False, True])
def test_the_time_of_what_preempts_a_run_is_not_its_own_also_where_it_fails(layers, fails):
    device, worker, model = layers
    model.fails = fails
    model.at_layer = [lambda: device.ask(model, [10])] * 5
    device.ask(model, [2000])
    worker.step()
    (seconds,) = [seconds for preemptible, seconds in model.ran if preemptible]
    assert seconds == pytest.approx(5 * model.layer_s + OVERHEAD_S + PRICE_S * 2000)


def test_finishing_the_outputs_of_a_run_that_preempts_another_is_not_preempted(layers):
    device, worker, model = layers
    asked = []
    model.at_layer = [lambda: asked.append(device.ask(model, [10]))] * 3
    device.ask(model, [2000])
    worker.step()
    assert [(each.settled, each.error) for each in asked] == [(True, None)] * 3


@pytest.mark.parametrize(("busy", "settled"), [(True, [True, False]), (False, [False, False])])
def test_short_outputs_wait_for_no_thread_that_is_at_large_ones(layers, busy, settled):
    device, worker, model = layers
    model.finish_s = 0.0
    worker._finishing = SimpleNamespace(submit=lambda call, *arguments, quick: None, busy=busy)
    asked = [device.ask(model, [10], key=key) for key in ("first", "second")]
    worker.step()  # the second waits for the device
    assert [each.settled for each in asked] == settled


@pytest.mark.parametrize(("finish_s", "quick"), [(0.003, True), (0.02, False)])
def test_outputs_that_take_milliseconds_wait_for_a_thread_but_not_behind_large_ones(layers, finish_s, quick):
    device, worker, model = layers
    model.finish_s = finish_s
    submitted = []
    worker._finishing = SimpleNamespace(submit=lambda call, *arguments, quick: submitted.append(quick), busy=True)
    device.ask(model, [10])
    worker.step()
    assert submitted == [quick]


def test_runs_of_an_accelerator_are_awaited_in_their_order_however_brief_their_outputs_are(layers):
    device, worker, model = layers
    worker.device, model.finish_s = Device("cuda", asynchronous=True), 0.003
    submitted = []
    worker._finishing = SimpleNamespace(submit=lambda call, *arguments, quick: submitted.append(quick), busy=True)
    device.ask(model, [10])
    worker.step()
    assert submitted == [False]


@pytest.mark.parametrize(
    ("seconds", "cpu_s", "counts"),
    [(0.0004, 0.0003, 0.0003), (0.009, 0.0003, 0.0003), (0.2, 0.0003, 0.2), (0.005, 9, 0.005)],
)
def test_what_others_on_the_same_cores_held_up_is_as_quick_as_without_them(seconds, cpu_s, counts):
    assert work_s(seconds, cpu_s) == counts
