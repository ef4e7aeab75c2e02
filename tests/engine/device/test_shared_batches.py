"""Requests that meet in one batch: shared runs, equal answers, order, and clients that leave."""

import asyncio

import numpy as np
import pytest
from sie_fake.record import RECORD
from sie_sdk.wire import unpack

from sie_core.contracts import Item
from tests.engine.conftest import bounded, queued, request, sample, until, vectors

TEXTS = [" ".join(f"w{number}-{word}" for word in range(1 + number * 7 % 40)) for number in range(64)]


@pytest.mark.parametrize("device", ["cpu", "fake"])
async def test_64_clients_with_mixed_lengths_share_batches_and_get_the_sequential_answers(engines, device):
    hold = engines.hold()
    model = engines.model("held", run_hold=str(hold))
    hold.off()
    engine = await engines.start(load=[model], device=device)
    alone = [(await bounded(engine.infer(request(model, text)))).items for text in TEXTS]
    assert len(RECORD.runs(model)) == 64

    RECORD.clear()
    hold.on()
    tasks = [asyncio.create_task(engine.infer(request(model, text))) for text in TEXTS]
    await until(lambda: sum(run.size for run in RECORD.runs(model)) + queued(engine) == 64)
    hold.off()
    together = [reply.items for reply in await bounded(asyncio.gather(*tasks))]

    assert together == alone
    runs = RECORD.runs(model)
    assert sum(run.size for run in runs) == 64
    assert len(runs) <= 5  # those that were held on their way in, and one batch with all others
    sizes = [len(text.split()) for text in max(runs, key=lambda run: run.size).texts]
    assert sizes == sorted(sizes)


@pytest.mark.parametrize("device", ["cpu", "fake"])
async def test_stopping_32_of_64_clients_frees_their_queued_units_which_never_run(engines, device):
    hold = engines.hold()
    model = engines.model("held", run_hold=str(hold))
    engine = await engines.start(load=[model], device=device)
    first = asyncio.create_task(engine.infer(request(model, "first")))
    await until(lambda: RECORD.runs(model))
    tasks = [asyncio.create_task(engine.infer(request(model, text))) for text in TEXTS]
    await until(lambda: queued(engine) == 64)
    for task in tasks[::2]:
        task.cancel()
    await until(lambda: queued(engine) == 32)
    hold.off()
    replies = await bounded(asyncio.gather(*tasks, return_exceptions=True))

    assert all(isinstance(reply, asyncio.CancelledError) for reply in replies[::2])
    assert [len(reply.items) for reply in replies[1::2]] == [1] * 32
    ran = {text for run in RECORD.runs(model) for text in run.texts}
    assert ran == {"first", *TEXTS[1::2]}
    assert sample(engine, "sie_dropped_units_total", model=model, reason="cancelled") == 32
    await bounded(first)


async def test_a_client_that_leaves_while_its_batch_runs_is_left_out_when_the_batch_is_tried_again(engines):
    before, during = engines.hold(), engines.hold()
    gate = engines.model("gate", run_hold=str(before))
    model = engines.model("held", run_hold=str(during), oom_above_cost=1)
    engine = await engines.start(load=[gate, model])
    tasks = [asyncio.create_task(engine.infer(request(gate, "gate")))]
    await until(lambda: RECORD.runs(gate))
    tasks += [asyncio.create_task(engine.infer(request(model, text))) for text in ("stays", "leaves")]
    await until(lambda: queued(engine) == 2)
    before.off()
    await until(lambda: RECORD.runs(model))
    tasks.pop().cancel()
    await asyncio.sleep(0)
    during.off()
    assert [len(reply.items) for reply in await bounded(asyncio.gather(*tasks))] == [1, 1]
    assert [set(run.texts) for run in RECORD.runs(model)] == [{"stays", "leaves"}, {"stays"}]


async def test_requests_that_differ_only_in_what_finish_reads_share_a_batch_and_others_do_not(engines):
    hold = engines.hold()
    model = engines.model("held", run_hold=str(hold))
    engine = await engines.start(load=[model])
    blocker = asyncio.create_task(engine.infer(request(model, "blocker")))
    await until(lambda: RECORD.runs(model))
    tasks = [
        asyncio.create_task(engine.infer(request(model, "text", options=options)))
        for options in ({"scale": 2.0}, {"scale": 3.0}, {"salt": "x"}, {"lowercase": True})
    ]
    await until(lambda: queued(engine) == 4)
    hold.off()
    doubled, tripled, salted, plain = [vectors(reply)[0] for reply in await bounded(asyncio.gather(*tasks))]
    await bounded(blocker)
    assert sorted(run.size for run in RECORD.runs(model)[1:]) == [1, 3]
    assert doubled == pytest.approx(plain * 2)
    assert tripled == pytest.approx(plain * 3)
    assert not np.allclose(salted, plain)


async def test_a_request_larger_than_a_batch_is_split_and_answered_in_its_own_order(engines):
    model = engines.model("small", max_batch_tokens=16)
    engine = await engines.start(load=[model])
    items = [Item(text=" ".join(["w"] * (1 + number * 5 % 11)) + f" {number}", id=f"i{number}") for number in range(50)]
    reply = await bounded(engine.infer(request(model, items=items)))
    assert [unpack(item)["id"] for item in reply.items] == [item.id for item in items]
    alone = [await bounded(engine.infer(request(model, items=[item]))) for item in items]
    assert list(reply.items) == [one.items[0] for one in alone]
    assert len([run for run in RECORD.runs(model) if run.size > 1]) > 5
    assert all(run.cost <= 16 for run in RECORD.runs(model))
    assert reply.usage.input_tokens == sum(len(item.text.split()) for item in items)


async def test_the_windows_of_one_item_may_run_in_different_batches(engines):
    small = engines.model("small", max_batch_tokens=4)
    large = engines.model("large")
    engine = await engines.start(load=[small, large])
    text = " ".join(f"w{number}" for number in range(30))
    options = {"window": 3}
    in_one, in_many = [
        vectors(await bounded(engine.infer(request(model, text, "short", options=options)))) for model in (large, small)
    ]
    assert len(RECORD.runs(large)) == 1
    assert len(RECORD.runs(small)) > 5
    assert np.array_equal(in_one, in_many)


async def test_the_model_that_had_least_of_the_device_runs_first_then_the_one_with_the_oldest_unit(engines):
    hold = engines.hold()
    models = [engines.model(name, run_hold=str(hold)) for name in ("a", "b", "c")]
    engine = await engines.start(load=models)
    blocker = asyncio.create_task(engine.infer(request(models[0], "blocker")))
    await until(lambda: RECORD.runs())
    tasks = []
    for place, model in enumerate((models[2], models[0], models[1])):
        tasks.append(asyncio.create_task(engine.infer(request(model, "text"))))
        await until(lambda place=place: queued(engine) == place + 1)
    hold.off()
    await bounded(asyncio.gather(blocker, *tasks))
    assert [run.model for run in RECORD.runs()[1:]] == [models[2], models[1], models[0]]  # the blocker was of the last


async def test_an_asynchronous_device_is_given_the_next_batch_before_it_ends_the_last(engines):
    model = engines.model("slow", runtime={"latency_ms": 300.0})
    engine = await engines.start(load=[model], device="fake", max_batch_requests=1)
    tasks = [asyncio.create_task(engine.infer(request(model, f"t{number}"))) for number in range(3)]
    await until(lambda: len(RECORD.runs(model)) == 2)
    assert not any(task.done() for task in tasks)
    await bounded(asyncio.gather(*tasks))
