"""A LoRA adapter that fits as it is waits for no other load: neither for one at work, nor for what one drains."""

from __future__ import annotations

import asyncio

import pytest

from sie_core.contracts import InferenceError
from sie_core.engine.timeouts import Timeouts
from tests.engine.conftest import bounded, loads_at_work, request, told, until

MB = 1_000_000


def asked(model, **fields):
    return request(model, "text", options={"lora": "small"}, **fields)


async def test_an_adapter_is_served_while_a_model_loads_which_costs_its_own(engines):
    hold = engines.hold()
    base = engines.model("base", memory_bytes=50 * MB, takes_lora=True, loras={"small": 20 * MB})
    slow = engines.model("slow", memory_bytes=50 * MB, load_hold=str(hold))
    engine = await engines.start(device="fake", memory_limit_bytes=300 * MB, load=[base])
    loading = asyncio.create_task(engine.load(slow))
    await until(lambda: loads_at_work(engine))
    assert (await bounded(engine.infer(asked(base)))).lora == "small"
    assert engine.model(slow).state == "loading"
    hold.off()
    await bounded(loading)
    assert engine.model(slow).memory_bytes == 50 * MB


async def test_an_adapter_is_served_while_a_load_waits_for_a_busy_model_to_drain(engines):
    hold = engines.hold()
    base = engines.model("base", memory_bytes=20 * MB, takes_lora=True, loras={"small": 20 * MB})
    busy = engines.model("busy", memory_bytes=120 * MB, prepare_hold=str(hold))
    other = engines.model("other", memory_bytes=120 * MB)
    engine = await engines.start(
        device="fake",
        memory_limit_bytes=250 * MB,
        pinned_models=(base,),
        load=[base, busy],
        timeouts=Timeouts(drain_s=1000.0, room_s=1000.0),
    )
    running = asyncio.create_task(engine.infer(request(busy, "text")))
    await until(lambda: told(engine, busy).leases)
    loading = asyncio.create_task(engine.load(other))
    await until(lambda: engine.model(busy).state == "unloading")
    assert (await bounded(engine.infer(asked(base)))).lora == "small"
    assert engine.model(other).state == "loading"
    hold.off()
    await bounded(asyncio.gather(running, loading))


async def test_an_adapter_whose_first_load_goes_on_though_nobody_waits_for_it_is_loaded_again_beside_it(engines):
    hold = engines.hold()
    base = engines.model("base", takes_lora=True, loras={"small": 20 * MB}, lora_hold=str(hold))
    engine = await engines.start(device="fake", load=[base], timeouts=Timeouts(asked_unload_s=0.05))
    with pytest.raises(InferenceError, match="is being loaded"):
        await bounded(engine.infer(asked(base, load_wait_s=0.0)))
    await until(lambda: loads_at_work(engine) == 1 and told(engine, base).leases)
    assert not await bounded(engine.unload(base))  # the load at work keeps its model
    again = asyncio.create_task(engine.infer(asked(base)))
    await until(lambda: loads_at_work(engine) == 2)
    hold.off()
    assert (await bounded(again)).lora == "small"
