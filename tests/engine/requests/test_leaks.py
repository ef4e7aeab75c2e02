"""Requests leave nothing behind: neither answered ones, nor refused, nor cancelled."""

import asyncio
import gc
import sys
from collections import Counter

import pytest
from sie_fake.record import RECORD

from tests.engine.conftest import bounded, request

TIMERS = 150
"""More than the cancelled timers that an event loop keeps before it clears them away, far less than the requests."""


def live_objects():
    """Count the objects of each type, and every allocated block beside them: bytes and arrays are no objects here."""
    RECORD.clear()  # the fake keeps what it ran
    gc.collect()
    blocks = sys.getallocatedblocks()
    return Counter(type(each).__name__ for each in gc.get_objects()), blocks


async def one_of_each_kind(engine, model):
    """Answer, fail, refuse and cancel."""
    tasks = [
        asyncio.create_task(engine.infer(request(model, text, deadline=None, **fields)))
        for text, fields in [
            ("text", {}),
            ("[poison]", {}),
            ("text", {"dimensions": 3}),
            ("cancelled", {}),
            ("text", {"output_types": ("sparse", "dense")}),
        ]
    ]
    await asyncio.sleep(0)
    tasks[3].cancel()
    results = await bounded(asyncio.gather(*tasks, return_exceptions=True))
    assert [error.code for error in results[1:3]] == ["INFERENCE_ERROR", "INVALID_INPUT"]


@pytest.mark.parametrize("device", ["cpu", "fake"])
async def test_memory_does_not_grow_over_five_thousand_requests(engines, device, caplog):
    caplog.set_level("CRITICAL")  # captured records would keep requests alive
    model = engines.model("plain", runtime={"crash_text": "[poison]"})
    engine = await engines.start(load=[model], device=device)
    for _ in range(100):
        await one_of_each_kind(engine, model)
    before, blocks_before = live_objects()
    for _ in range(1000):
        await one_of_each_kind(engine, model)
    after, blocks_after = live_objects()
    grown = {name: count - before[name] for name, count in after.items() if count - before[name] > TIMERS}
    assert not grown
    assert blocks_after - blocks_before < 1000
