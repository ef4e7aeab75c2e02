"""What the registry tells of requests and batches."""

import pytest
from prometheus_client import generate_latest

from sie_core.contracts import InferenceError
from tests.engine.conftest import bounded, request, sample


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
    assert sample(engine, "sie_input_tokens_total", model=model) == 6


async def test_two_engines_count_apart(engines):
    model = engines.model("plain")
    one, other = await engines.start(load=[model]), await engines.start(load=[model])
    await bounded(one.infer(request(model, "text")))
    assert sample(one, "sie_items_total", model=model) == 1
    assert sample(other, "sie_items_total", model=model) == 0
