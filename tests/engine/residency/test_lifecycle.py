"""Loading on the first request, failing loads, preload, and unloading without pulling a model from under a request."""

import asyncio
import dataclasses
import gc
import threading
import weakref

import pytest
import yaml
from sie_fake.adapter import FakeAdapter
from sie_fake.memory import MEMORY
from sie_fake.record import RECORD

from sie_core.contracts import InferenceError, ModelConfig, ModelFamily, Profile, ResolvedModel, WeightTierFactory
from sie_core.engine.models.record import ModelRecord, State
from sie_core.engine.residency.loader import Loader
from sie_core.engine.timeouts import Timeouts
from tests.engine.conftest import Clock, bounded, queued, request, sample, until


async def refusal(engine, model, **fields):
    """Ask for what must be refused; return the error."""
    with pytest.raises(InferenceError) as caught:
        await bounded(engine.infer(request(model, "text", **fields)))
    return caught.value


async def test_the_first_request_starts_the_load_and_is_told_when_to_come_back(engines):
    hold = engines.hold()
    model = engines.model("slow", load_hold=str(hold))
    engine = await engines.start()
    assert engine.model(model).state == "available"
    error = await refusal(engine, model, load_wait_s=0.0)
    assert error.code == "MODEL_LOADING"
    assert 0 < error.retry_after_s < 1.1  # nothing is known of it
    assert engine.model(model).state == "loading"
    hold.off()
    await until(lambda: engine.model(model).state == "loaded")
    assert len((await bounded(engine.infer(request(model, "text", load_wait_s=0.0)))).items) == 1


async def test_concurrent_first_requests_share_one_load_and_all_are_answered(engines):
    hold = engines.hold()
    model = engines.model("slow", load_hold=str(hold))
    engine = await engines.start()
    tasks = [asyncio.create_task(engine.infer(request(model, f"text {number}"))) for number in range(32)]
    await until(lambda: sample(engine, "sie_requests_in_flight") == 32)
    hold.off()
    assert [len(reply.items) for reply in await bounded(asyncio.gather(*tasks))] == [1] * 32
    assert len(RECORD.events(model, "load")) == 1
    assert sample(engine, "sie_model_loads_total", model=model, outcome="ok") == 1


async def test_a_request_that_waits_less_than_the_load_takes_is_told_to_come_back(engines):
    hold = engines.hold()
    model = engines.model("slow", load_hold=str(hold))
    engine = await engines.start()
    assert (await refusal(engine, model, load_wait_s=0.01)).code == "MODEL_LOADING"
    assert engine.model(model).state == "loading"


async def test_cancelling_the_first_request_does_not_cancel_the_load(engines):
    hold = engines.hold()
    model = engines.model("slow", load_hold=str(hold))
    engine = await engines.start()
    task = asyncio.create_task(engine.infer(request(model, "text")))
    await until(lambda: engine.model(model).state == "loading")
    task.cancel()
    hold.off()
    await until(lambda: engine.model(model).state == "loaded")
    assert task.cancelled()


async def test_fetches_that_hang_hold_up_the_load_of_no_other_model(engines):
    asked, release = [], threading.Event()

    class Hanging:
        name = "hanging"

        def fetch(self, request):
            asked.append(request.repo_id)
            release.wait(60)

    tier = WeightTierFactory("hanging", 150, lambda context: Hanging())
    for number in range(8):
        config = {"sie_id": f"org/m{number}", "hf_id": f"org/m{number}", "tasks": {"encode": {"dense": {"dim": 8}}}}
        config |= {"inputs": {"text": True}, "profiles": {"default": {"max_batch_tokens": 1000}}}
        (engines.folder / f"m{number}.yaml").write_text(yaml.safe_dump(config))
    weightless = engines.model("weightless")
    engine = await engines.start(lambda plugins: dataclasses.replace(plugins, weight_tiers=(tier,)))
    try:
        for number in range(8):
            assert (await refusal(engine, f"org/m{number}", load_wait_s=0)).code == "MODEL_LOADING"
        await until(lambda: len(asked) == 8)
        assert len((await bounded(engine.infer(request(weightless, "text")))).items) == 1
    finally:
        release.set()


async def test_the_stages_of_a_load_are_measured_and_shown(engines):
    model = engines.model("slow", load_s=0.02)
    engine = await engines.start()
    await bounded(engine.load(model))
    stages = engine.model(model).load_stages_s
    assert {"fetch", "import", "load", "load.weights", "total"} <= set(stages)
    assert 0.02 <= stages["load.weights"] <= stages["load"] <= stages["total"]
    assert sample(engine, "sie_model_load_stage_seconds", model=model, stage="total") == stages["total"]


async def test_a_loaded_model_shows_what_its_weights_are_and_who_serves_it(engines):
    model = engines.model("plain")
    engine = await engines.start(load=[model])
    info = engine.model(model)
    assert (info.adapter, info.outputs, info.dims["dense"]) == ("fake", ("dense", "sparse", "multivector"), 8)
    assert info.matryoshka_dims == (4, 8)
    assert "adapter_path" in info.notes["family"]
    assert [listed.id for listed in engine.models() if listed.state == "loaded"] == [model]


@pytest.mark.parametrize("failure", ["GATED", "NOT_FOUND", "CONFIG", "CORRUPT", "DEPENDENCY"])
async def test_a_permanent_failure_is_not_tried_again_by_requests(engines, failure):
    model = engines.model(f"broken-{failure}", load_failure=failure, load_failure_times=1)
    engine = await engines.start()
    for _ in range(3):
        error = await refusal(engine, model)
        assert (error.code, error.retry_after_s) == ("MODEL_LOAD_FAILED", None)
        assert error.details == {"error_class": failure, "permanent": True, "attempts": 1}
    assert engine.model(model).state == "failed"
    assert engine.model(model).last_error["permanent"] is True
    assert sample(engine, "sie_model_loads_total", model=model, outcome=failure) == 1
    await bounded(engine.load(model))  # the operator acted
    assert engine.model(model).last_error is None
    assert len((await bounded(engine.infer(request(model, "text")))).items) == 1


@pytest.mark.parametrize("failure", ["GATED", "NOT_FOUND", "CONFIG", "CORRUPT", "DEPENDENCY"])
async def test_a_permanent_failure_that_was_put_right_is_found_without_a_restart(engines, failure):
    model = engines.model(f"mended-{failure}", load_failure=failure, load_failure_times=2)
    clock = Clock()
    engine = await engines.start(clock=clock)
    error = await refusal(engine, model)
    assert "does not help" in error.message
    assert "from 600 s on" in error.message
    clock.ahead_s = 601
    error = await refusal(engine, model)
    assert (error.retry_after_s, error.details["permanent"], error.details["attempts"]) == (None, True, 2)
    clock.ahead_s = 1190
    assert (await refusal(engine, model)).details["attempts"] == 2  # it cools down anew
    clock.ahead_s = 1210
    assert len((await bounded(engine.infer(request(model, "text")))).items) == 1
    assert engine.model(model).last_error is None


async def test_a_transient_failure_cools_down_and_is_then_tried_again(engines):
    model = engines.model("flaky-network", load_failure="NETWORK", load_failure_times=2)
    engine = await engines.start(clock=(clock := Clock()))
    error = await refusal(engine, model)
    assert error.details == {"error_class": "NETWORK", "permanent": False, "attempts": 1}
    assert error.message.endswith("The first request from 30 s on tries again.")
    assert (await refusal(engine, model)).details["attempts"] == 1  # still cooling down
    clock.ahead_s = 31
    assert (await refusal(engine, model)).details["attempts"] == 2
    clock.ahead_s = 92
    assert len((await bounded(engine.infer(request(model, "text")))).items) == 1


@pytest.mark.parametrize(("failure", "shown"), [("OOM", "no room"), ("UNKNOWN", "RuntimeError in sie_fake")])
async def test_an_untyped_failure_gets_its_class_and_leaks_no_text(engines, failure, shown, caplog):
    model = engines.model("broken", load_failure=failure)
    engine = await engines.start()
    error = await refusal(engine, model)
    assert (error.details["error_class"], error.details["permanent"]) == (failure, False)
    assert shown in error.message
    assert "as its config asks" not in error.message
    assert "as its config asks" in caplog.text
    (line,) = (record for record in caplog.records if record.levelname == "ERROR")
    assert line.facts == {"model": model, "error_class": failure, "attempts": 1}


async def test_an_adapter_that_cannot_be_imported_says_what_is_missing(engines):
    model = engines.model("broken", adapter="odd")
    family = ModelFamily("odd", "sie_no_such_module:load", lambda card: None, weightless=True)
    engine = await engines.start(
        lambda plugins: dataclasses.replace(plugins, families={**plugins.families, "odd": family})
    )
    error = await refusal(engine, model)
    assert error.details["error_class"] == "DEPENDENCY"
    assert "sie_no_such_module" in error.message


@pytest.mark.parametrize(
    ("load", "told"),
    [("builtins:id", "id of the model family 'odd' returned no `Adapter`"), ("math:adapter", "does not exist")],
)
async def test_a_family_whose_load_is_wrong_is_named(engines, load, told):
    model = engines.model("broken", adapter="odd")
    family = ModelFamily("odd", load, lambda card: None, weightless=True)
    engine = await engines.start(
        lambda plugins: dataclasses.replace(plugins, families={**plugins.families, "odd": family})
    )
    error = await refusal(engine, model)
    assert error.details["error_class"] == "DEPENDENCY"
    assert told in error.message


async def test_a_model_in_use_is_unloaded_only_when_its_requests_are_answered(engines):
    hold = engines.hold()
    model = engines.model("held", run_hold=str(hold))
    engine = await engines.start(load=[model])
    running = asyncio.create_task(engine.infer(request(model, "running")))
    await until(lambda: RECORD.runs(model))
    waiting = asyncio.create_task(engine.infer(request(model, "waiting")))
    await until(lambda: queued(engine) == 1)
    unload = asyncio.create_task(engine.unload(model))
    await until(lambda: engine.model(model).state == "unloading")
    error = await refusal(engine, model, load_wait_s=0.0)
    assert (error.code, error.retry_after_s) == ("MODEL_NOT_LOADED", 5.0)
    assert not RECORD.events(model, "unload")
    hold.off()
    assert [len(reply.items) for reply in await bounded(asyncio.gather(running, waiting))] == [1, 1]
    await bounded(unload)
    assert [event.kind for event in RECORD.events(model)][-1] == "unload"
    assert engine.model(model).state == "available"


async def test_a_model_is_not_unloaded_while_a_batch_of_a_cancelled_request_runs(engines):
    hold = engines.hold()
    model = engines.model("held", run_hold=str(hold))
    engine = await engines.start(load=[model])
    task = asyncio.create_task(engine.infer(request(model, "text")))
    await until(lambda: RECORD.runs(model))
    task.cancel()
    unload = asyncio.create_task(engine.unload(model))
    await until(lambda: task.done() and engine.model(model).state == "unloading")
    assert not RECORD.events(model, "unload")
    hold.off()
    await bounded(unload)
    assert RECORD.events(model, "unload")


async def test_a_request_that_may_wait_outlasts_an_unload_and_the_next_load(engines):
    hold = engines.hold()
    model = engines.model("held", run_hold=str(hold))
    engine = await engines.start(load=[model])
    running = asyncio.create_task(engine.infer(request(model, "running")))
    await until(lambda: RECORD.runs(model))
    unload = asyncio.create_task(engine.unload(model))
    await until(lambda: engine.model(model).state == "unloading")
    late = asyncio.create_task(engine.infer(request(model, "late")))
    await asyncio.sleep(0)
    hold.off()
    await bounded(asyncio.gather(running, unload, late))
    assert [event.kind for event in RECORD.events(model)] == ["run", "unload", "load", "run"]


async def test_an_unload_during_a_load_waits_for_it_and_those_who_had_it_loaded_are_answered(engines):
    hold = engines.hold()
    model = engines.model("slow", load_hold=str(hold))
    engine = await engines.start()
    asked = asyncio.create_task(engine.infer(request(model, "text")))
    await until(lambda: engine.model(model).state == "loading")
    unload = asyncio.create_task(engine.unload(model))
    await asyncio.sleep(0)
    hold.off()
    assert len((await bounded(asked)).items) == 1
    assert await bounded(unload)
    assert [event.kind for event in RECORD.events(model)][-1] == "unload"
    assert engine.model(model).state == "available"


async def test_a_load_that_fails_after_the_adapter_is_there_gives_its_memory_back(engines, monkeypatch):
    monkeypatch.setattr(Loader, "_limits", lambda *_: 1 / 0)
    model = engines.model("model", memory_bytes=100_000_000)
    engine = await engines.start(device="fake")
    assert (await refusal(engine, model)).details["error_class"] == "UNKNOWN"
    assert MEMORY.used == 0
    assert [event.kind for event in RECORD.events(model)] == ["load", "unload"]


async def test_an_unloaded_model_leaves_nothing_in_memory(engines, monkeypatch):
    born = []
    init = FakeAdapter.__init__

    def remember(self, context):
        init(self, context)
        born.append(weakref.ref(self))

    monkeypatch.setattr(FakeAdapter, "__init__", remember)
    model = engines.model("plain")
    engine = await engines.start()
    await bounded(engine.infer(request(model, "text")))
    await bounded(engine.unload(model))
    await bounded(engine.unload(model))  # twice does no harm
    gc.collect()
    assert [ref() for ref in born] == [None]


async def test_an_unload_that_hangs_does_not_hold_up_the_close(engines, monkeypatch, caplog):
    models = [engines.model(name) for name in ("hangs", "unloads")]
    engine = await engines.start(load=models, timeouts=Timeouts(close_unload_s=0.2))
    release, unloaded = threading.Event(), []

    def unload(adapter):
        unloaded.append(adapter)
        if len(unloaded) == 1:
            release.wait(60)

    monkeypatch.setattr(FakeAdapter, "unload", unload)
    try:
        await asyncio.wait_for(engine.close(), 10)
        assert len(unloaded) == 2
        assert "left behind" in caplog.text
    finally:
        release.set()


async def test_readiness_waits_for_the_preload(engines):
    hold = engines.hold()
    model = engines.model("slow", load_hold=str(hold))
    engine = engines.make(preload_models=(model,))
    assert "not been started" in engine.health().ready_problem
    starting = asyncio.create_task(engine.start())
    await until(lambda: engine.model(model).state == "loading")
    assert model in engine.health().ready_problem
    assert engine.health().live_problem is None
    hold.off()
    await bounded(starting)
    assert engine.health().ready_problem is None
    assert len((await bounded(engine.infer(request(model, "text", load_wait_s=0.0)))).items) == 1


async def test_requests_before_the_start_wait_for_it(engines):
    model = engines.model("cold")
    engine = engines.make()
    early = [asyncio.create_task(engine.infer(request(name, "text"))) for name in (model, "unknown")]
    await asyncio.sleep(0)
    await bounded(engine.start())
    assert len((await bounded(early[0])).items) == 1
    with pytest.raises(InferenceError) as refused:
        await bounded(early[1])
    assert refused.value.code == "MODEL_NOT_FOUND"


async def test_requests_before_a_start_that_fails_are_refused(engines):
    model = engines.model("cold")
    engine = engines.make()
    early = asyncio.create_task(engine.infer(request(model, "text")))
    await asyncio.sleep(0)
    await bounded(engine.close())
    with pytest.raises(InferenceError) as refused:
        await bounded(early)
    assert refused.value.code == "QUEUE_UNAVAILABLE"


async def test_a_failed_preload_keeps_readiness_red_and_says_why_until_it_succeeds(engines):
    broken = engines.model("broken", load_failure="GATED")
    flaky = engines.model("flaky", load_failure="STORAGE", load_failure_times=2)
    engine = await engines.start(preload_models=(broken, flaky), timeouts=Timeouts(cooldown_s={"STORAGE": 0.0}))
    await until(lambda: engine.model(flaky).state == "loaded")
    await until(lambda: flaky not in engine.health().ready_problem)
    assert f"{broken} failed" in engine.health().ready_problem
    assert engine.health().live_problem is None


async def test_an_unknown_model_is_refused_with_near_names(engines):
    engines.model("plain")
    engine = await engines.start()
    error = await refusal(engine, "test/plane")
    assert error.code == "MODEL_NOT_FOUND"
    assert "test/plain" in error.message
    with pytest.raises(InferenceError, match="test/plain"):
        engine.model("test/plane")


async def test_what_is_loaded_is_not_loaded_again_and_nothing_of_it_is_lost(engines):
    model = engines.model("model")
    engine = await engines.start(load=[model])
    await bounded(engine.load(model))
    assert engine.model(model).state == "loaded"
    assert RECORD.events(model) == []


def test_a_move_that_is_not_legal_raises_and_names_the_model_and_its_states():
    record = ModelRecord(ResolvedModel("org/model", ModelConfig("org/model"), Profile("default")))
    with pytest.raises(RuntimeError, match="org/model cannot go from available to ready"):
        record.move(State.READY)
    assert record.state is State.AVAILABLE


async def test_a_closed_engine_loads_nothing_more(engines):
    hold = engines.hold()
    model = engines.model("model", load_hold=str(hold))
    engine = await engines.start()
    loading = asyncio.create_task(engine.load(model))
    await until(lambda: engine.model(model).state == "loading")
    await bounded(engine.close())
    with pytest.raises(InferenceError) as caught:
        await bounded(loading)
    assert caught.value.code == "QUEUE_UNAVAILABLE"
    assert engine.model(model).state == "available"


async def test_a_model_is_pinned_by_its_id_with_the_default_profile_too(engines):
    model = engines.model("model")
    engine = await engines.start(load=[model], pinned_models=(f"{model}:default",))
    assert engine.model(model).pinned


async def test_what_a_load_made_is_old_to_the_garbage_collection_once_it_is_done(engines, monkeypatch):
    load, made = FakeAdapter.__init__, []

    def importing(self, *arguments, **fields):
        made.append(["an object that stays, as those of a library do"])
        load(self, *arguments, **fields)

    monkeypatch.setattr(FakeAdapter, "__init__", importing)
    gc.disable()
    try:
        await engines.start(load=[engines.model("model")])
        old = {id(each) for each in gc.get_objects(generation=2)}
        assert [id(each) in old for each in made] == [True]
    finally:
        gc.enable()
