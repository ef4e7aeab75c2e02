"""A batch of short requests runs in the middle of a large one, which gets the same answer a little later."""

from __future__ import annotations

import asyncio
import threading

import pytest
from sie_fake.adapter import FakeAdapter
from sie_fake.record import RECORD

from sie_core.batching.sharing import admission
from sie_core.contracts import preemption_point
from tests.engine.conftest import BOUND_S, bounded, queued, request, sample, until, vectors

LARGE = " ".join(["w"] * 40)
CRASHES = {"crash_text": "short"}


@pytest.fixture
def halfway(monkeypatch):
    """Have each run of the large request stop halfway until it may go on, and then be preempted if it can be."""
    begun, go_on = threading.Event(), threading.Event()
    run = FakeAdapter.run
    monkeypatch.setattr(admission, "SHORT_AGAIN_S", 1e9)  # however busy the machine is

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
    for text in "abc":
        await bounded(engine.infer(request(model, text)))
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
    assert sample(engine, "sie_batches_total", model=model) == 7
    assert engine.health().ready_problem is None


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


async def test_nothing_preempts_where_no_short_requests_come(engines, halfway):
    begun, _ = halfway
    model = engines.model("model", max_batch_tokens=8)
    engine = await engines.start(load=[model])
    assert len((await bounded(engine.infer(request(model, LARGE)))).items) == 1
    assert not begun.is_set()
