"""A device that does nothing any more is told by liveness, and whatever is asked of it is answered."""

import asyncio

import pytest
from sie_fake.adapter import FakeAdapter
from sie_fake.record import RECORD

from sie_core.contracts import DeviceLost, InferenceError
from sie_core.engine.models.loaded import FAILURES_TOLD
from tests.engine.conftest import bounded, request, sample, until

DEVICES = pytest.mark.parametrize("device", ["cpu", "fake"])


async def codes(waiting):
    replies = await bounded(asyncio.gather(*waiting, return_exceptions=True))
    return [getattr(reply, "code", "ok") for reply in replies]


def lose(self, units, raw):
    raise DeviceLost("illegal memory access")


@DEVICES
@pytest.mark.parametrize("stage", ["run", "finish"])
async def test_a_lost_device_turns_liveness_red_and_turns_every_request_away(engines, device, stage, monkeypatch):
    hold = engines.hold()
    model = engines.model("doomed", run_hold=str(hold), max_batch_tokens=1)
    other = engines.model("other")
    engine = await engines.start(load=[model, other], device=device, pinned_models=(model, other))
    options = {}
    if stage == "run":
        options = {"lost_text": "lost"}
    else:
        monkeypatch.setattr(FakeAdapter, "finish", lose)
    running = asyncio.create_task(engine.infer(request(model, "lost", options=options)))
    await until(lambda: RECORD.runs(model))
    tasks = [asyncio.create_task(engine.infer(request(model, f"queued{number}"))) for number in range(8)]
    await until(lambda: sample(engine, "sie_queue_units") == 8)
    assert engine.health().live_problem is None
    hold.off()
    assert set(await codes([running, *tasks])) == {"QUEUE_UNAVAILABLE"}
    assert engine.health().live_problem == f"device {device} is lost, the process must be restarted"
    assert engine.health().ready_problem == engine.health().live_problem
    assert await codes(engine.infer(request(each, "later")) for each in (model, other)) == ["QUEUE_UNAVAILABLE"] * 2
    assert sample(engine, "sie_requests_in_flight") == 0


async def test_a_device_lost_while_a_model_loads_turns_liveness_red(engines, monkeypatch):
    def load(context):
        raise DeviceLost("illegal memory access")

    model = engines.model("doomed")
    engine = await engines.start()
    monkeypatch.setattr("sie_fake.adapter.load", load)
    assert await codes([engine.infer(request(model, "text"))]) == ["MODEL_LOAD_FAILED"]
    assert "is lost" in engine.health().live_problem


async def test_a_device_lost_while_a_lora_adapter_loads_turns_liveness_red(engines, monkeypatch):
    def load_lora(self, name, folder):
        raise DeviceLost("illegal memory access")

    model = engines.model("doomed", takes_lora=True, loras={"legal": 4})
    engine = await engines.start(load=[model])
    monkeypatch.setattr(FakeAdapter, "load_lora", load_lora)
    asked = request(model, "text", options={"lora": "legal"})
    assert await codes([engine.infer(asked)]) == ["MODEL_LOAD_FAILED"]
    assert "is lost" in engine.health().live_problem
    assert await codes([engine.infer(request(model, "text"))]) == ["QUEUE_UNAVAILABLE"]


async def fail(engine, model, times=FAILURES_TOLD):
    for number in range(times):
        with pytest.raises(InferenceError, match="failed on this request"):
            await bounded(engine.infer(request(model, f"text {number}", options={"crash_text": "text"})))


@DEVICES
async def test_models_that_all_fail_are_told_each_until_they_answer_and_liveness_stays_green(engines, device):
    models = [engines.model("one"), engines.model("two")]
    engine = await engines.start(load=models, device=device)
    for _ in range(FAILURES_TOLD):
        for model in models:
            await fail(engine, model, 1)
    assert engine.health().live_problem is None
    assert [note.split(":")[0] for note in engine.health().notes] == models
    for model in models:
        await bounded(engine.infer(request(model, "fine")))
    await until(lambda: engine.health().notes == ())


async def test_one_model_that_always_fails_is_told_and_the_process_is_left_alone(engines):
    broken, fine = engines.model("broken"), engines.model("fine")
    engine = await engines.start(load=[broken, fine])
    await bounded(engine.infer(request(broken, "fine")))
    await fail(engine, broken, 3 * FAILURES_TOLD)
    health = engine.health()
    assert health.live_problem is None
    (note,) = [note for note in health.notes if broken in note]
    assert f"the last {3 * FAILURES_TOLD} requests" in note
    assert engine.model(broken).notes["failing"] in note
    assert sample(engine, "sie_models_failing") == 1
    await bounded(engine.infer(request(broken, "fine")))
    await until(lambda: "failing" not in engine.model(broken).notes)


async def test_refused_input_and_lack_of_memory_are_no_failures_of_a_model(engines):
    model = engines.model("fine")
    engine = await engines.start(load=[model])
    texts = [request(model, "text", options={"oom_text": "text"}) for _ in range(FAILURES_TOLD)]
    texts += [request(model, "word " * 600, truncate="error") for _ in range(FAILURES_TOLD)]
    assert set(await codes(engine.infer(each) for each in texts)) == {"RESOURCE_EXHAUSTED", "INPUT_TOO_LONG"}
    assert engine.health().notes == ()
