"""What the registry tells of requests and batches."""

import asyncio
from dataclasses import replace

import pytest
from prometheus_client import generate_latest
from sie_fake.record import RECORD

from sie_core.contracts import InferenceError, Item
from tests.engine.conftest import BOUND_S, ENCODE, Clock, bounded, loads_at_work, request, sample, until


async def test_requests_are_counted_by_operation_model_and_outcome(engines):
    model = engines.model("faulty", runtime={"crash_text": "[poison]"})
    engine = await engines.start(load=[model])
    for text in ("a", "b"):
        await bounded(engine.infer(request(model, text)))
    with pytest.raises(InferenceError):
        await bounded(engine.infer(request(model, "[poison]")))
    counted = {
        outcome: sample(engine, "sie_requests_total", operation="encode", model=model, outcome=outcome)
        for outcome in ("ok", "INFERENCE_ERROR")
    }
    assert counted == {"ok": 2, "INFERENCE_ERROR": 1}


async def test_a_name_nobody_serves_makes_no_label_of_its_own(engines):
    engine = await engines.start()
    with pytest.raises(InferenceError):
        await bounded(engine.infer(request("some/invented-name", "text")))
    assert "invented" not in generate_latest(engine.metrics.registry).decode()
    assert sample(engine, "sie_requests_total", operation="encode", model="", outcome="MODEL_NOT_FOUND") == 1


async def test_batches_are_described_and_in_detail_where_asked(engines):
    model = engines.model("plain")
    engine = await engines.start(load=[model], instrumentation=True)
    await bounded(engine.infer(request(model, "three short words", "two words")))
    await bounded(engine.infer(request(model, "again")))
    assert sample(engine, "sie_batches_total", model=model) == 2
    assert sample(engine, "sie_batch_cost_sum", model=model) == 6
    assert sample(engine, "sie_batch_requests_sum", model=model) == 2
    assert sample(engine, "sie_batch_units_sum", model=model) == 3
    assert sample(engine, "sie_batch_wait_seconds_count", model=model) == 2
    assert sample(engine, "sie_batch_prediction_ratio_count", model=model) == 1  # the first was not predicted
    assert sample(engine, "sie_items_total", model=model) == 3
    assert sample(engine, "sie_input_tokens_total", model=model, operation="encode") == 6


async def test_two_engines_count_apart(engines):
    model = engines.model("plain")
    one, other = await engines.start(load=[model]), await engines.start(load=[model])
    await bounded(one.infer(request(model, "text")))
    assert sample(one, "sie_items_total", model=model) == 1
    assert sample(other, "sie_items_total", model=model) == 0


async def test_tokens_are_counted_by_operation(engines):
    model = engines.model("both", tasks={**ENCODE, "score": {}})
    engine = await engines.start(load=[model])
    await bounded(engine.infer(request(model, "three short words")))
    query = replace(request(model, "two words"), operation="score", query=Item(text="one"))
    await bounded(engine.infer(query))
    tokens = {
        each: sample(engine, "sie_input_tokens_total", model=model, operation=each) for each in ("encode", "score")
    }
    assert tokens == {"encode": 3, "score": 3}


async def test_a_cold_start_and_the_first_batch_after_it_are_timed(engines):
    hold = engines.hold()
    model = engines.model("cold", load_hold=str(hold))
    clock = Clock()
    engine = await engines.start(clock=clock)
    asked = asyncio.create_task(engine.infer(request(model, "a")))
    await until(lambda: loads_at_work(engine))
    clock.ahead_s = 20.0
    hold.off()
    await bounded(asked)
    assert sample(engine, "sie_model_cold_start_seconds_count", model=model) == 1
    waited = sample(engine, "sie_model_cold_start_seconds_sum", model=model)
    first = sample(engine, "sie_model_first_batch_seconds", model=model)
    assert 20 <= waited <= first < 20 + BOUND_S
    await bounded(engine.infer(request(model, "b")))
    assert sample(engine, "sie_model_cold_start_seconds_count", model=model) == 1
    assert sample(engine, "sie_model_first_batch_seconds", model=model) == first


async def test_what_ran_for_a_request_that_was_cancelled_meanwhile_is_wasted(engines):
    hold = engines.hold()
    model = engines.model("held", run_hold=str(hold))
    engine = await engines.start(load=[model])
    asked = asyncio.create_task(engine.infer(request(model, "three short words")))
    await until(lambda: RECORD.runs(model))
    asked.cancel()
    await asyncio.wait([asked], timeout=BOUND_S)
    hold.off()
    await until(lambda: sample(engine, "sie_batches_total", model=model))
    await until(lambda: sample(engine, "sie_wasted_cost_total", model=model) == 3)
    await bounded(engine.infer(request(model, "b")))
    assert sample(engine, "sie_wasted_cost_total", model=model) == 3


async def test_ten_thousand_invented_names_make_no_series(engines):
    model = engines.model("adapted", takes_lora=True, loras={"german": 4096})
    engine = await engines.start(load=[model])

    async def ask(number: int) -> None:
        with pytest.raises(InferenceError):
            await engine.infer(request(f"~{number}", "text"))
        with pytest.raises(InferenceError):
            await engine.infer(request(model, "text", options={"lora": f"~{number}"}))

    def series() -> list[bytes]:
        return [line.rpartition(b" ")[0] for line in generate_latest(engine.metrics.registry).splitlines()]

    await bounded(ask(0))
    before = series()
    for number in range(5000):
        await ask(number)
    assert series() == before
    assert not any(b"~" in line for line in before)
