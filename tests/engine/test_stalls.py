"""A stage that hangs is told, and nobody waits for it for ever."""

import asyncio
import re
import threading

import pytest
from sie_fake.adapter import FakeAdapter
from sie_fake.record import RECORD

from sie_core.cache import WeightChain
from sie_core.contracts import InferenceError, Item, Media, TokenizeRequest
from sie_core.defaults import BUILTINS
from sie_core.engine import build_engine
from sie_core.engine.timeouts import Timeouts
from sie_core.plugins import discover

from .conftest import BOUND_S, Clock, bounded, request, sample, until


async def refusal(waiting):
    with pytest.raises(InferenceError) as caught:
        await bounded(waiting)
    return caught.value


@pytest.mark.parametrize("option", ["prepare_hold", "image_hold"])
async def test_a_preparation_that_hangs_answers_its_request_and_those_behind_it(engines, option):
    hold = engines.hold()
    model = engines.model("held", inputs=("text", "image"), **{option: str(hold)})
    engine = await engines.start(load=[model], timeouts=Timeouts(stall_s=0.1), preprocessor_workers=1, image_workers=1)
    item = Item(text="a", images=[Media(b"picture")])
    hung = asyncio.create_task(engine.infer(request(model, items=[item])))
    await until(lambda: any(work for pool in pools(engine) for work in pool._at_work))
    behind = asyncio.create_task(engine.infer(request(model, items=[item])))
    error = await refusal(hung)
    assert (error.code, error.message) == (
        "INFERENCE_ERROR",
        f"{model} did not end the preparation of this request within 0.5 s.",
    )
    assert (await refusal(behind)).code == "QUEUE_UNAVAILABLE"
    assert left_over(engine, model, *pools(engine)) == (0, 1)
    assert re.fullmatch("1 of 1 sie-(prepare|image) threads .* over 0.5 s", engine.health().live_problem)
    assert engine.health().ready_problem == engine.health().live_problem
    hold.off()
    await until(lambda: engine.health().live_problem is None)
    assert engine.health().notes == ()
    assert len((await bounded(engine.infer(request(model, items=[item])))).items) == 1
    assert [run.size for run in RECORD.runs(model)] == [1]  # what was given up is not run


def pools(engine):
    return engine._pipeline._preparing, engine._pipeline._seeing


def left_over(engine, model, *pools):
    """Count the calls that wait for a thread, and who uses a model."""
    loaded = engine._registry.known(model).loaded
    return sum(pool.waiting for pool in pools), loaded.leases.count


async def test_one_thread_that_hangs_beside_others_is_noted_and_the_others_work(engines):
    hold = engines.hold()
    held, free = engines.model("held", prepare_hold=str(hold)), engines.model("free")
    engine = await engines.start(load=[held, free], timeouts=Timeouts(stall_s=0.1), preprocessor_workers=2)
    assert (await refusal(engine.infer(request(held, "text")))).code == "INFERENCE_ERROR"
    assert len((await bounded(engine.infer(request(free, "text")))).items) == 1
    health = engine.health()
    assert health.live_problem is None
    assert health.ready_problem is None
    assert health.notes == ("1 of 2 sie-prepare threads at work on one request for over 0.1 s",)


async def test_tokenising_that_hangs_answers_its_request_and_leaves_inference_alone(engines):
    hold = engines.hold()
    model = engines.model("held", prepare_hold=str(hold))
    engine = await engines.start(load=[model], timeouts=Timeouts(stall_s=0.1))
    error = await refusal(engine.tokenize(TokenizeRequest(model, ["text"], "r1")))
    assert (error.code, "tokenisation" in error.message) == ("INFERENCE_ERROR", True)
    behind = [engine.tokenize(TokenizeRequest(model, ["text"], f"behind {number}")) for number in range(3)]
    assert [(await refusal(each)).code for each in behind] == ["QUEUE_UNAVAILABLE"] * 3
    assert left_over(engine, model, engine._pipeline._tokenizing.pool) == (0, 1)  # only the one that hangs
    assert engine.health().live_problem is None
    assert "sie-tokenize" in engine.health().notes[0]
    hold.off()
    await until(lambda: engine.health().notes == ())
    assert len(await bounded(engine.tokenize(TokenizeRequest(model, ["text"], "r3")))) == 1
    assert await bounded(engine.unload(model))


@pytest.mark.parametrize("device", ["cpu", "fake"])
async def test_a_batch_that_waits_to_be_finished_is_no_hang_and_one_that_is_being_finished_is(
    engines, monkeypatch, device
):
    model, clock = engines.model("plain"), Clock()
    engine = await engines.start(load=[model], preprocessor_workers=1, device=device, clock=clock)
    taken, busy, finishing, finish = threading.Event(), threading.Event(), threading.Event(), FakeAdapter.finish

    def held(self, units, raw):
        finishing.set()
        assert free.wait(BOUND_S)
        return finish(self, units, raw)

    free = threading.Event()
    monkeypatch.setattr(FakeAdapter, "finish", held)
    pool = engine._pipeline._finishing
    pool.submit(lambda: (taken.set(), busy.wait(BOUND_S)))
    try:
        await asyncio.to_thread(taken.wait, BOUND_S)
        task = asyncio.create_task(engine.infer(request(model, "text")))
        await until(lambda: pool.waiting == 1)
        clock.ahead_s = 1000
        assert engine.health().live_problem is None
        clock.ahead_s = 0
        busy.set()
        await asyncio.to_thread(finishing.wait, BOUND_S)
        assert engine.health().live_problem is None
        clock.ahead_s = 1000
        assert model in engine.health().live_problem
    finally:
        clock.ahead_s = 0
        busy.set()
        free.set()
    await bounded(task)
    assert engine.health().live_problem is None


async def test_a_fetch_of_which_nothing_comes_is_told_until_something_does(engines, monkeypatch):
    asked, free = threading.Event(), threading.Event()

    class Tier:
        name = "slow"

        def fetch(self, asking):
            self.progress = asking.progress
            asked.set()
            assert free.wait(BOUND_S)

    tier = Tier()
    (engines.folder / "far.yaml").write_text(
        "{sie_id: org/far, hf_id: org/far, inputs: {text: true}, tasks: {encode: {dense: {dim: 8}}}, "
        "profiles: {default: {max_batch_tokens: 64}}}"
    )
    settings = engines.settings()
    plugins = discover(settings, BUILTINS)
    engine = build_engine(settings, plugins, weights=WeightChain([tier]), clock=(clock := Clock()))
    engines.made.append(engine)
    await bounded(engine.start())
    try:
        assert (await refusal(engine.infer(request("org/far", "text", load_wait_s=0)))).code == "MODEL_LOADING"
        await asyncio.to_thread(asked.wait, BOUND_S)
        assert engine.health().notes == ()
        assert engine.model("org/far").notes == {"fetch": "no bytes counted yet"}
        clock.ahead_s = 1000
        (note,) = engine.health().notes
        assert note.startswith("org/far: nothing has come of its weights for 1000 s")
        assert engine.model("org/far").notes["fetch"] in note
        assert sample(engine, "sie_model_fetches_stalled") == 1
        assert engine.health().live_problem is None
        tier.progress(5_000_000, 20_000_000)
        assert engine.health().notes == ()
        assert engine.model("org/far").notes == {"fetch": "5 of 20 MB"}
        assert sample(engine, "sie_model_fetches_stalled") == 0
    finally:
        free.set()
    await until(lambda: engine.model("org/far").state == "failed")
    assert engine.model("org/far").notes == {}
