"""`Engine.status`: what is in flight, queued, loaded and being loaded, at every moment of a model's life."""

import asyncio

import pytest
from sie_fake.device import FakeProbe
from sie_fake.record import RECORD

from sie_core.contracts import InferenceError, StageStatus
from tests.engine.conftest import bounded, held, loads_at_work, loads_waiting, request, told, until

MB = 1_000_000


async def test_an_engine_at_rest_tells_its_device_and_nothing_else(engines):
    engines.model("never-asked-for")
    engine = await engines.start(device="fake", memory_limit_bytes=300 * MB, memory_pressure_threshold_percent=80)
    status = engine.status()
    assert (status.device, status.memory.total, status.threshold) == (engine.device, 300 * MB, 0.8)
    assert (status.in_flight, status.queued, status.models, status.loads) == (0, {}, [], [])
    assert status.stages.keys() == {"prepare", "image", "finish", "measure"}
    assert status.stages["prepare"] == StageStatus(0, 0)


async def test_requests_are_told_by_where_they_are(engines):
    run, prepare = engines.hold(), engines.hold()
    model, slow = engines.model("model", run_hold=str(run)), engines.model("slow", prepare_hold=str(prepare))
    engine = await engines.start(load=[model, slow], pinned_models=(model,))
    assert engine.status().queued == {model: 0, slow: 0}
    asked = [asyncio.create_task(engine.infer(request(model, "first")))]
    await until(lambda: RECORD.runs(model))
    asked += [asyncio.create_task(engine.infer(request(model, f"text {number}"))) for number in range(3)]
    await until(lambda: engine.status().queued == {model: 3, slow: 0})
    asked += [asyncio.create_task(engine.infer(request(slow, "text"))) for _ in range(3)]
    await until(lambda: engine.status().stages["prepare"] == StageStatus(waiting=1, at_work=2))
    assert engine.status().in_flight == 7
    assert (told(engine, model).pinned, told(engine, slow).pinned) == (True, False)
    assert told(engine, model).leases >= 4
    run.off()
    prepare.off()
    await bounded(asyncio.gather(*asked))
    await until(lambda: not any(each.leases for each in engine.status().models))
    status = engine.status()
    assert (status.in_flight, status.queued) == (0, {model: 0, slow: 0})


async def test_the_loads_of_models_and_adapters_are_told_and_what_they_come_to(engines):
    hold = engines.hold()
    first = engines.model("first", load_hold=str(hold), memory_bytes=10 * MB, takes_lora=True, loras={"a": MB, "b": MB})
    second, broken = engines.model("second"), engines.model("broken", load_failure="GATED")
    engine = await engines.start(device="fake")
    waiting = [asyncio.create_task(engine.load(first))]
    await until(lambda: loads_at_work(engine))
    waiting.append(asyncio.create_task(engine.load(second)))
    await until(lambda: loads_waiting(engine) == 1)
    assert [load.what for load in engine.status().loads] == [first, second]
    assert (told(engine, first).state, told(engine, second).state) == ("loading", "queued")
    hold.off()
    await bounded(asyncio.gather(*waiting))
    with pytest.raises(InferenceError):
        await bounded(engine.load(broken))
    for lora in ("a", "b", "a"):
        await bounded(engine.infer(request(first, "text", options={"lora": lora})))
    assert [told(engine, model).state for model in (first, second, broken)] == ["ready", "ready", "failed"]
    assert (told(engine, first).loras, told(engine, first).memory_bytes) == (("b", "a"), 12 * MB)
    await bounded(engine.unload(first))
    assert (told(engine, first).state, told(engine, first).loras) == ("available", ())
    assert engine.status().loads == []
    assert set(held(engine)) == {first, second, broken}


async def test_a_model_that_drains_is_told_until_its_last_lease_is_released(engines):
    hold = engines.hold()
    model = engines.model("model", run_hold=str(hold))
    engine = await engines.start(load=[model])
    running = asyncio.create_task(engine.infer(request(model, "text")))
    await until(lambda: RECORD.runs(model))
    unloading = asyncio.create_task(engine.unload(model))
    await until(lambda: told(engine, model).state == "draining")
    assert told(engine, model).leases > 0
    hold.off()
    await bounded(asyncio.gather(running, unloading))
    assert told(engine, model).state == "available"


async def test_a_device_that_cannot_be_measured_is_told_without_its_memory(engines, monkeypatch):
    def fail(probe, device):
        raise RuntimeError("the driver is gone")

    monkeypatch.setattr(FakeProbe, "memory", fail)
    engine = await engines.start(device="fake")
    assert engine.status().memory is None
