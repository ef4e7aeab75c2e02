"""A stage that hangs is told, and holds up nothing else."""

import asyncio
import re
import threading
import time

import pytest
from sie_fake.adapter import FakeAdapter
from sie_fake.record import RECORD

from sie_core.cache import WeightChain
from sie_core.contracts import InferenceError, Item, Media, TokenizeRequest
from sie_core.defaults import BUILTINS
from sie_core.engine import build_engine
from sie_core.engine.timeouts import Timeouts
from sie_core.plugins import discover
from tests.engine.conftest import BOUND_S, Clock, bounded, request, sample, until


async def refusal(waiting):
    with pytest.raises(InferenceError) as caught:
        await bounded(waiting)
    return caught.value


@pytest.mark.parametrize("option", ["prepare_hold", "image_hold"])
async def test_a_stage_that_hangs_turns_liveness_red_and_what_waits_is_answered_when_it_comes_back(engines, option):
    hold = engines.hold()
    model = engines.model("held", inputs=("text", "image"), **{option: str(hold)})
    timeouts = Timeouts(stall_s=0.1, stage_s=0.2)
    engine = await engines.start(load=[model], timeouts=timeouts, preprocessor_workers=1, image_workers=1)
    item = Item(text="a", images=[Media(b"picture")])
    waiting = [asyncio.create_task(engine.infer(request(model, items=[item]))) for _ in range(2)]
    await until(lambda: engine.health().live_problem)
    assert re.fullmatch("1 of 1 sie-(prepare|image) threads .* over 0.2 s", engine.health().live_problem)
    assert engine.health().ready_problem == engine.health().live_problem
    assert not any(each.done() for each in waiting)
    hold.off()
    assert [len(reply.items) for reply in await bounded(asyncio.gather(*waiting))] == [1, 1]
    await until(lambda: engine.health().live_problem is None)
    assert engine.health().notes == ()


async def test_a_deadline_answers_a_request_whose_preparation_hangs_and_its_model_stays_until_it_ends(engines):
    hold = engines.hold()
    model = engines.model("held", prepare_hold=str(hold))
    engine = await engines.start(load=[model], timeouts=Timeouts(asked_unload_s=0.1), preprocessor_workers=1)
    late = request(model, "text", deadline=time.monotonic() + 0.1)
    assert (await refusal(engine.infer(late))).code == "DEADLINE_EXCEEDED"
    assert not await bounded(engine.unload(model))
    hold.off()
    assert len((await bounded(engine.infer(request(model, "next")))).items) == 1
    assert await bounded(engine.unload(model))
    assert [run.texts for run in RECORD.runs(model)] == [("next",)]


async def test_one_thread_that_hangs_beside_others_is_noted_and_the_others_work(engines):
    hold = engines.hold()
    held, free = engines.model("held", prepare_hold=str(hold)), engines.model("free")
    timeouts = Timeouts(stall_s=0.1, stage_s=0.1)
    engine = await engines.start(load=[held, free], timeouts=timeouts, preprocessor_workers=2)
    hung = asyncio.create_task(engine.infer(request(held, "text")))
    await until(lambda: engine.health().notes)
    assert len((await bounded(engine.infer(request(free, "text")))).items) == 1
    health = engine.health()
    assert (health.live_problem, health.ready_problem) == (None, None)
    assert health.notes == ("1 of 2 sie-prepare threads at work on one request for over 0.1 s",)
    hold.off()
    await bounded(hung)


@pytest.mark.parametrize("threads", [1, 2])
async def test_tokenising_that_hangs_takes_one_thread_which_is_told_as_any_other(engines, threads):
    hold = engines.hold()
    held, free = engines.model("held", prepare_hold=str(hold)), engines.model("free")
    timeouts = Timeouts(stall_s=0.1, stage_s=0.1)
    engine = await engines.start(load=[held, free], timeouts=timeouts, preprocessor_workers=threads)
    asked = [TokenizeRequest(held, ["text"], f"r{number}") for number in range(3)]
    waiting = [asyncio.create_task(engine.tokenize(each)) for each in asked]
    await until(lambda: engine.health().notes)
    (note,) = engine.health().notes
    assert note.startswith(f"1 of {threads} sie-prepare threads")
    if threads == 1:
        await until(lambda: engine.health().live_problem == note)
    else:
        assert len((await bounded(engine.infer(request(free, "text")))).items) == 1
        assert engine.health().live_problem is None
    hold.off()
    assert [len(tokens) for tokens in await bounded(asyncio.gather(*waiting))] == [1] * 3
    await until(lambda: engine.health().notes == ())
    assert await bounded(engine.unload(held))


@pytest.mark.parametrize("device", ["cpu", "fake"])
async def test_a_batch_that_waits_to_be_finished_is_no_hang_and_one_that_is_being_finished_is(
    engines, monkeypatch, device
):
    ahead, model, clock = engines.model("ahead"), engines.model("plain"), Clock()
    engine = await engines.start(load=[ahead, model], preprocessor_workers=1, device=device, clock=clock)
    begun, gates, finish = [], [threading.Event() for _ in range(3)], FakeAdapter.finish

    def held(self, units, raw):
        begun.append(len(units))
        assert gates[len(begun) - 1].wait(BOUND_S)
        return finish(self, units, raw)

    monkeypatch.setattr(FakeAdapter, "finish", held)
    tasks = []
    try:
        for name in (ahead, ahead, model):
            tasks.append(asyncio.create_task(engine.infer(request(name, "text"))))
            await until(lambda: len(RECORD.runs()) == len(tasks))
        await until(lambda: engine.status().stages["finish"].waiting == 2)
        clock.ahead_s = 40
        gates[0].set()
        await until(lambda: len(begun) == 2)
        clock.ahead_s = 80
        assert engine.health().live_problem is None  # the third has waited for longer than a batch may be at work
        gates[1].set()
        await until(lambda: len(begun) == 3)
        assert engine.health().live_problem is None
        clock.ahead_s = 1000
        assert model in engine.health().live_problem
    finally:
        for gate in gates:
            gate.set()
    await bounded(asyncio.gather(*tasks))
    await until(lambda: engine.health().live_problem is None)


async def test_a_fetch_of_which_nothing_comes_is_told_until_something_does(engines):
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
        assert engine.model("org/far").notes == {"fetch": "nothing yet"}
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
