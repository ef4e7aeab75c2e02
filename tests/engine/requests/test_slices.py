"""A large request goes through the engine in slices: bounded in memory, in nobody's way, and answered as if whole."""

import asyncio
import itertools
from dataclasses import replace
from random import Random

import pytest
from sie_fake.adapter import FakeAdapter
from sie_fake.record import RECORD

from sie_core.concurrency.room import Bounds, Room
from sie_core.contracts import InferenceError, InferenceRequest, Item, Task
from sie_core.engine.pipeline import slices
from sie_core.postprocess import OUTPUT_DTYPES
from sie_core.postprocess.plan import OutputPlan
from tests.engine.conftest import bounded, request, sample, told, until
from tests.engine.interleaved import parts

MIB = 2**20
MANY = 600


def texts(count: int) -> list[str]:
    return [f"text number {number}" for number in range(count)]


async def held_back(engines, **fields):
    """Return an engine whose batches take 30 cost units, its model, and what holds their runs."""
    hold = engines.hold()
    model = engines.model("model", max_batch_tokens=30, run_hold=str(hold), **fields)
    return await engines.start(load=[model]), model, hold


async def full(engine):
    """Wait until as much of a large request is prepared as there is room for."""
    before = -1
    while before != (before := engine.status().prepared_cost) or not before:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def test_the_answer_to_a_request_in_slices_is_that_to_a_whole_one(engines):
    small, large = engines.model("small", max_batch_tokens=7), engines.model("large")
    engine = await engines.start(load=[small, large])
    asked = [*texts(MANY), "w " * 600, "", *texts(3)]
    options = {"window": 2}
    replies = [await bounded(engine.infer(request(model, *asked, options=options))) for model in (small, large)]
    assert len(RECORD.runs(small)) > 100
    assert list(replies[0].items) == list(replies[1].items)
    assert (replies[0].usage, replies[0].truncated) == (replies[1].usage, replies[1].truncated)
    assert sample(engine, "sie_items_total", model=small) == len(asked)
    assert sample(engine, "sie_truncated_items_total", model=small) == 1


async def test_only_some_batches_of_a_large_request_are_prepared_ahead(engines):
    engine, model, hold = await held_back(engines)
    task = asyncio.create_task(engine.infer(request(model, *texts(MANY))))
    await full(engine)
    assert 60 <= engine.status().prepared_cost <= 5 * 30
    hold.off()
    assert len((await bounded(task)).items) == MANY
    status = engine.status()
    assert (status.prepared_cost, status.prepared_bytes) == (0, 0)


async def test_units_that_take_much_memory_are_prepared_as_it_comes_free(engines):
    engine, model, hold = await held_back(engines, unit_bytes=MIB)
    task = asyncio.create_task(engine.infer(request(model, *["w"] * 40)))
    await full(engine)
    assert 16 * MIB <= engine.status().prepared_bytes <= 21 * MIB
    hold.off()
    assert len((await bounded(task)).items) == 40


async def test_scores_by_vectors_are_sliced_too_and_stay_with_their_documents(engines):
    model, whole = engines.model("model", max_batch_tokens=10), engines.model("whole")
    engine = await engines.start(load=[model, whole])
    asked = [request(each, *texts(100), query=Item(text="text number 7")) for each in (model, whole)]
    replies = [await bounded(engine.infer(replace(each, operation="score"))) for each in asked]
    assert list(replies[0].items) == list(replies[1].items)


async def test_what_is_wrong_with_a_late_item_is_said_of_its_place(engines):
    model = engines.model("model", max_batch_tokens=10)
    engine = await engines.start(load=[model])
    with pytest.raises(InferenceError) as caught:
        await bounded(engine.infer(request(model, *texts(300), "w " * 600, truncate="error")))
    assert (caught.value.code, caught.value.param) == ("INPUT_TOO_LONG", "items[300].text")
    await until(lambda: engine.status().prepared_cost == 0)
    await until(lambda: told(engine, model).leases == 0)


async def test_short_requests_are_taken_while_a_request_larger_than_the_queue_is_at_work(engines):
    hold = engines.hold()
    model, other = engines.model("model", max_batch_tokens=30, run_hold=str(hold)), engines.model("other")
    engine = await engines.start(load=[model, other], max_queued_cost=600)
    bulk = asyncio.create_task(engine.infer(request(model, *texts(MANY))))
    await full(engine)
    short = [asyncio.create_task(engine.infer(request(each, "short"))) for each in (model, other)]
    await asyncio.sleep(0.05)
    assert not any(task.done() for task in short)
    hold.off()
    assert [len(reply.items) for reply in await bounded(asyncio.gather(bulk, *short))] == [MANY, 1, 1]


async def test_a_short_text_is_prepared_before_the_large_requests_that_came_earlier(engines):
    hold = engines.hold()
    model, other = engines.model("model", prepare_hold=str(hold)), engines.model("other")
    engine = await engines.start(load=[model, other], preprocessor_workers=1)
    await bounded(engine.infer(request(other, "first")))
    prepared, waiting = [], []
    at_work = asyncio.create_task(engine.infer(request(model, "w", "w")))
    await until(lambda: engine.status().stages["prepare"].at_work == 1)
    for name, items in (("large", texts(MANY)), ("another", texts(MANY)), ("short", ["short"])):
        task = asyncio.create_task(engine.infer(request(other, *items)))
        task.add_done_callback(lambda _, name=name: prepared.append(name))
        await until(lambda: engine.status().stages["prepare"].waiting >= len(waiting) + 1)
        waiting.append(task)
    hold.off()
    await bounded(asyncio.gather(at_work, *waiting))
    assert prepared[0] == "short"


@pytest.mark.parametrize(("items", "steps"), [(1, 1), (3, 3)])
async def test_the_end_of_a_request_is_found_with_its_last_item_however_long_that_took(items, steps):
    loaded, threads, now = parts.model(), parts.Threads(), itertools.count()
    queue, room = parts.Queue(Random(1), loaded), Room(Bounds(sliced_cost=100))
    preparing = slices.Preparing(threads, room, queue, lambda: float(next(now)))
    unit = {"cost": 1, "tokens": 1, "number": 1}
    asked = InferenceRequest("m", "score", [Item(text="w", metadata={"units": [unit]})] * items, request_id="r")
    flight = slices.SlicedFlight(asked, loaded, Task("score"), OutputPlan(OUTPUT_DTYPES[0]), 0.0, preparing)
    flight.start()
    made = 0
    while threads.waiting:
        work = threads.waiting.pop()
        work.call(*work.arguments)
        made += 1
    assert made == steps
    assert len(queue.units) == items


@pytest.mark.parametrize("at", ["waits for room", "waits for a thread"])
async def test_a_large_request_that_is_cancelled_is_prepared_no_further(engines, at):
    hold = engines.hold()
    if at == "waits for room":
        engine, model, _ = await held_back(engines)
        task = asyncio.create_task(engine.infer(request(model, *texts(MANY))))
        await full(engine)
    else:
        model = engines.model("model", prepare_hold=str(hold))
        engine = await engines.start(load=[model], preprocessor_workers=1)
        first = asyncio.create_task(engine.infer(request(model, "first")))
        task = asyncio.create_task(engine.infer(request(model, *texts(MANY))))
        await until(lambda: engine.status().stages["prepare"].waiting == 1)
    task.cancel()
    await asyncio.wait([task])
    if at == "waits for a thread":
        assert engine.status().stages["prepare"].waiting == 0
        hold.off()
        await bounded(first)
    else:
        assert engine.status().prepared_cost == 0
        for each in engines.holds:
            each.off()
    await until(lambda: told(engine, model).leases == 0)


async def test_many_large_requests_share_a_narrow_queue_and_all_are_answered(engines):
    model = engines.model("model", max_batch_tokens=20)
    engine = await engines.start(load=[model], max_queued_cost=400, preprocessor_workers=1)
    asked = [engine.infer(request(model, *texts(80 + number))) for number in range(20)]
    replies = await bounded(asyncio.gather(*asked))
    assert [len(reply.items) for reply in replies] == [80 + number for number in range(20)]
    assert engine.status().prepared_cost == 0


async def test_units_of_one_item_must_follow_each_other(engines, monkeypatch):
    prepare = FakeAdapter.prepare

    def mixed(self, items, task):
        units = list(prepare(self, items, task))
        return [units[0], units[1], units[0]]

    model = engines.model("model")
    engine = await engines.start(load=[model])
    monkeypatch.setattr(FakeAdapter, "prepare", mixed)
    with pytest.raises(InferenceError) as caught:
        await bounded(engine.infer(request(model, "a", "b")))
    assert caught.value.code == "INFERENCE_ERROR"
