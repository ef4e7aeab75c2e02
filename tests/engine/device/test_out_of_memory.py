"""Out of memory at every stage: caches are freed, another model goes, the batch is split, one request is refused."""

import asyncio

import pytest
from sie_fake.memory import MEMORY
from sie_fake.record import RECORD

from sie_core.contracts import InferenceError
from sie_core.engine.device import worker as device_worker
from sie_core.engine.timeouts import Timeouts
from sie_core.memory.meter import DeviceMemoryMeter
from tests.engine.conftest import bounded, queued, request, sample, told, until

MB = 1_000_000
DEVICES = pytest.mark.parametrize("device", ["cpu", "fake"])
pytestmark = pytest.mark.usefixtures("hurried")
STAGES = ("prepare_oom_text", "oom_text", "finish_oom_text")


def evictions(engine, model):
    return sample(engine, "sie_model_evictions_total", model=model, reason="out_of_memory")


async def sixteen_in_one_batch(engines, engine, gate, hold, model):
    """Answer sixteen texts of two words that queue behind a held run of another model."""
    blocker = asyncio.create_task(engine.infer(request(gate, "gate")))
    await until(lambda: RECORD.runs(gate))
    tasks = [asyncio.create_task(engine.infer(request(model, f"text {number}"))) for number in range(16)]
    await until(lambda: queued(engine) == 16)
    hold.off()
    await bounded(blocker)
    return await bounded(asyncio.gather(*tasks))


async def test_the_longest_unused_model_goes_and_the_batch_runs_whole(engines):
    hold = engines.hold()
    gate = engines.model("gate", run_hold=str(hold))
    old, newer = (engines.model(name, memory_bytes=400 * MB) for name in ("old", "newer"))
    model = engines.model("model", run_bytes_per_cost=10 * MB)
    engine = await engines.start(
        load=[gate, model, old, newer], device="fake", pinned_models=(gate,), memory_pressure_threshold_percent=100
    )
    await bounded(engine.infer(request(newer, "used")))
    replies = await sixteen_in_one_batch(engines, engine, gate, hold, model)
    assert [len(reply.items) for reply in replies] == [1] * 16
    assert [run.size for run in RECORD.runs(model)] == [16, 16]
    assert [evictions(engine, name) for name in (old, newer)] == [1, 0]
    assert engine.model(newer).state == "loaded"


async def test_a_batch_that_does_not_fit_then_either_is_split(engines):
    hold = engines.hold()
    gate = engines.model("gate", run_hold=str(hold))
    old, model = engines.model("old", memory_bytes=100 * MB), engines.model("model", run_bytes_per_cost=60 * MB)
    engine = await engines.start(load=[gate, model, old], device="fake", pinned_models=(gate,))
    replies = await sixteen_in_one_batch(engines, engine, gate, hold, model)
    assert [len(reply.items) for reply in replies] == [1] * 16
    assert [run.size for run in RECORD.runs(model)] == [16, 16, 8, 8]  # one after the other: nothing runs beside them
    assert evictions(engine, old) == 1


async def test_one_that_can_never_fit_empties_the_device_of_one_model_at_most(engines):
    others = [engines.model(f"other{number}", memory_bytes=10 * MB) for number in range(3)]
    model = engines.model("model", run_bytes_per_cost=600 * MB)
    engine = await engines.start(load=[*others, model], device="fake")
    for _ in range(5):
        with pytest.raises(InferenceError) as caught:
            await bounded(engine.infer(request(model, "two words")))
        assert (caught.value.code, caught.value.retry_after_s) == ("RESOURCE_EXHAUSTED", 5.0)
    assert sum(evictions(engine, other) for other in others) == 1
    assert len((await bounded(engine.infer(request(model, "one")))).items) == 1


async def test_hopeless_requests_at_once_empty_the_device_of_one_model_at_most(engines):
    others = [engines.model(f"other{number}", memory_bytes=10 * MB) for number in range(6)]
    model = engines.model("model")
    engine = await engines.start(load=[*others, model], device="fake")
    options = [{"oom_text": "text", "salt": str(number)} for number in range(6)]  # each a batch of its own
    asked = [engine.infer(request(model, "text", options=each)) for each in options]
    replies = await bounded(asyncio.gather(*asked, return_exceptions=True))
    assert [getattr(reply, "code", "ok") for reply in replies] == ["RESOURCE_EXHAUSTED"] * 6
    assert sum(evictions(engine, other) for other in others) == 1


async def test_a_model_in_use_does_not_go_for_a_batch_that_lacks_memory(engines):
    hold = engines.hold()
    other = engines.model("other", memory_bytes=900 * MB, prepare_hold=str(hold))
    model = engines.model("model", run_bytes_per_cost=200 * MB)
    engine = await engines.start(load=[model, other], device="fake")
    using = asyncio.create_task(engine.infer(request(other, "text")))
    await until(lambda: told(engine, other).leases)
    with pytest.raises(InferenceError, match="ran out of memory"):
        await bounded(engine.infer(request(model, "text")))
    hold.off()
    assert len((await bounded(using)).items) == 1
    await until(lambda: not told(engine, other).leases)
    assert len((await bounded(engine.infer(request(model, "text")))).items) == 1


@DEVICES
@pytest.mark.parametrize("stage", STAGES)
async def test_every_other_request_is_answered_whatever_the_stage(engines, device, stage):
    model, other = engines.model("model", runtime={stage: "[oom]"}), engines.model("other")
    engine = await engines.start(load=[model, other], device=device)
    texts = [f"text {number}" + " [oom]" * (number % 5 == 0) for number in range(40)]
    asked = [engine.infer(request(name, text)) for text in texts for name in (model, other)]
    replies = await bounded(asyncio.gather(*asked, return_exceptions=True))
    codes = [getattr(reply, "code", "ok") for reply in replies[::2]]
    assert codes == ["RESOURCE_EXHAUSTED" if number % 5 == 0 else "ok" for number in range(40)]
    assert [getattr(reply, "code", "ok") for reply in replies[1::2]] == ["ok"] * 40
    assert all(reply.retry_after_s >= 1 for reply in replies if isinstance(reply, InferenceError))
    assert engine.health().live_problem is None
    assert engine.health().ready_problem is None


@DEVICES
async def test_a_thousand_failures_leave_the_engine_as_it_was(engines, device, caplog):
    caplog.set_level("CRITICAL")
    model = engines.model("model", runtime=dict(zip(STAGES, ("[prepare]", "[run]", "[finish]"), strict=True)))
    other, unloadable = engines.model("other"), engines.model(f"unloadable-{device}", load_failure="OOM")
    engine = await engines.start(load=[model, other], device=device, pinned_models=(model, other))
    with pytest.raises(InferenceError):
        await bounded(engine.load(unloadable))
    for _ in range(100):
        texts = [f"text {number} [{('prepare', 'run', 'finish')[number % 3]}]" for number in range(10)]
        asked = [engine.infer(request(model, text)) for text in texts]
        asked += [engine.infer(request(name, "text")) for name in (model, other)]
        replies = await bounded(asyncio.gather(*asked, return_exceptions=True))
        assert [getattr(reply, "code", "ok") for reply in replies] == ["RESOURCE_EXHAUSTED"] * 10 + ["ok"] * 2
        assert engine.health().live_problem is None
        assert engine.health().ready_problem is None
    assert queued(engine) == 0
    assert MEMORY.used == 0
    await bounded(engine.unload(model))
    assert engine.model(model).state == "available"  # nothing holds it any more
    assert len((await bounded(engine.infer(request(model, "text")))).items) == 1


async def test_caches_are_freed_once_for_many_failures_in_a_row(engines, monkeypatch):
    freed, free = [], DeviceMemoryMeter.collect
    monkeypatch.setattr(DeviceMemoryMeter, "collect", lambda gauge: freed.append(free(gauge)))
    model = engines.model("model", runtime={"oom_text": "[oom]"})
    engine = await engines.start(load=[model], timeouts=Timeouts(collect_again_s=1000.0))
    for _ in range(5):
        with pytest.raises(InferenceError):
            await bounded(engine.infer(request(model, "[oom]")))
    assert len(freed) == 1


async def test_the_heap_is_trimmed_at_each_failure_and_after_what_is_refused(engines, monkeypatch):
    events = []
    free, refuse = DeviceMemoryMeter.free_caches, device_worker.DeviceWorker._fail_request
    monkeypatch.setattr(DeviceMemoryMeter, "free_caches", lambda gauge: (events.append("free"), free(gauge)))
    monkeypatch.setattr(device_worker, "trim_heap", lambda: events.append("trim"))
    monkeypatch.setattr(
        device_worker.DeviceWorker, "_fail_request", lambda *told: (events.append("refuse"), refuse(*told))
    )
    model = engines.model("model", runtime={"oom_text": "[oom]"})
    engine = await engines.start(load=[model], timeouts=Timeouts(collect_again_s=1000.0))
    events.clear()
    for _ in range(3):
        with pytest.raises(InferenceError, match="out of memory"):
            await bounded(engine.infer(request(model, "[oom]")))
    assert events == ["free", "refuse", "trim"] * 3
