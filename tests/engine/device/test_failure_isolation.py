"""What fails, fails alone: poison, crashes, NaN and exhausted memory, at every stage and on both kinds of device."""

import asyncio
import dataclasses
import logging
import sys
import time
import types
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from sie_fake.record import RECORD

from sie_core.contracts import (
    Adapter,
    InferenceError,
    Item,
    ItemOutput,
    ModelFacts,
    ModelFamily,
    Task,
    Unit,
)
from tests.engine.conftest import BOUND_S, bounded, queued, request, sample, until, vectors

DEVICES = pytest.mark.parametrize("device", ["cpu", "fake"])


async def together(engine, engines, gate, hold, requests):
    """Answer requests from one batch: they queue behind a held run of another model."""
    blocker = asyncio.create_task(engine.infer(request(gate, "gate")))
    await until(lambda: RECORD.runs(gate))
    tasks = [asyncio.create_task(engine.infer(each)) for each in requests]
    await until(lambda: queued(engine) == sum(len(each.items) for each in requests))
    hold.off()
    replies = await bounded(asyncio.gather(*tasks, return_exceptions=True))
    await bounded(blocker)
    return replies


async def one_batch_with(engines, device, marker, **options):
    """Send 16 texts in one batch, the 11th with the marker; return the engine, the model and the replies."""
    hold = engines.hold()
    gate = engines.model("gate", run_hold=str(hold))
    model = engines.model("faulty", **options)
    engine = await engines.start(load=[gate, model], device=device, pinned_models=(gate,))
    texts = [f"text {number}" for number in range(16)]
    texts[10] += f" {marker}"
    replies = await together(engine, engines, gate, hold, [request(model, text) for text in texts])
    return engine, model, replies


def check_that_only_the_11th_failed(replies, code):
    failed = [number for number, reply in enumerate(replies) if isinstance(reply, BaseException)]
    assert failed == [10]
    assert isinstance(replies[10], InferenceError)
    assert replies[10].code == code
    return replies[10]


@DEVICES
@pytest.mark.parametrize("option", ["crash_text", "finish_crash_text"])
async def test_poison_is_found_by_bisection_and_fails_its_own_request_alone(engines, device, option, caplog):
    engine, model, replies = await one_batch_with(engines, device, "[poison]", runtime={option: "[poison]"})
    error = check_that_only_the_11th_failed(replies, "INFERENCE_ERROR")
    assert "crashed" not in error.message  # the exception's own text is for the log alone
    assert "crashed, as the text asks" in caplog.text
    runs = [run.size for run in RECORD.runs(model)]
    assert runs[0] == 16
    assert len(runs) == 9  # the batch, then both halves of every failing part: 8, 4, 2, 1
    assert sample(engine, "sie_batch_failures_total", model=model, reason="error") == 5
    again = await bounded(engine.infer(request(model, "text 3")))
    assert again.items == replies[3].items


@DEVICES
async def test_a_large_request_with_poison_fails_and_its_queued_rest_never_runs(engines, device):
    model = engines.model("faulty", max_batch_tokens=4, runtime={"crash_text": "[poison]"})
    engine = await engines.start(load=[model], device=device)
    texts = ["[poison]", *(f"t{number}" for number in range(400))]
    with pytest.raises(InferenceError, match="failed on this request"):
        await bounded(engine.infer(request(model, *texts)))
    await until(lambda: queued(engine) == 0)
    assert sum(run.size for run in RECORD.runs(model)) < 400
    assert sample(engine, "sie_dropped_units_total", model=model, reason="failed") > 0


@DEVICES
async def test_a_crash_in_preparation_fails_its_own_request_alone(engines, device):
    model = engines.model("faulty", runtime={"prepare_crash_text": "[poison]"})
    engine = await engines.start(load=[model], device=device)
    texts = [f"text {number}" + (" [poison]" if number == 10 else "") for number in range(16)]
    replies = await bounded(
        asyncio.gather(*(engine.infer(request(model, text)) for text in texts), return_exceptions=True)
    )
    check_that_only_the_11th_failed(replies, "INFERENCE_ERROR")


@DEVICES
async def test_nan_never_leaves_with_a_success_and_names_its_item(engines, device):
    hold = engines.hold()
    gate = engines.model("gate", run_hold=str(hold))
    model = engines.model("faulty", runtime={"nan_text": "[nan]"})
    engine = await engines.start(load=[gate, model], device=device)
    requests = [request(model, "a", "b", "c", "d [nan]", "e"), *(request(model, f"text {n}") for n in range(5))]
    replies = await together(engine, engines, gate, hold, requests)
    assert [type(reply).__name__ for reply in replies] == ["InferenceError"] + ["InferenceReply"] * 5
    assert (replies[0].code, replies[0].param) == ("NON_FINITE_OUTPUT", "items[3]")
    assert "items[3]" in replies[0].message
    assert sample(engine, "sie_non_finite_outputs_total", model=model) == 1
    assert len(RECORD.runs(model)) == 1  # a wrong number is no reason to run anybody twice
    assert all(np.isfinite(vectors(reply)[0]).all() for reply in replies[1:])


@DEVICES
@pytest.mark.parametrize("output", ["sparse", "multivector"])
async def test_nan_is_found_in_every_output(engines, device, output):
    model = engines.model("faulty", runtime={"nan_text": "[nan]"})
    engine = await engines.start(load=[model], device=device)
    with pytest.raises(InferenceError, match=r"items\[1\]"):
        await bounded(engine.infer(request(model, "a", "b [nan]", output_types=(output,))))


@DEVICES
async def test_a_batch_that_exhausts_memory_is_split_until_it_fits(engines, device):
    engine, model, replies = await one_batch_with(engines, device, "", oom_above_cost=4)
    assert [len(reply.items) for reply in replies] == [1] * 16
    alone = await engine.infer(request(model, "text 3"))
    assert alone.items == replies[3].items
    costs = [run.cost for run in RECORD.runs(model)][:-1]
    assert max(costs) == 32
    assert sum(cost for cost in costs if cost <= 4) == 32
    assert sample(engine, "sie_batch_failures_total", model=model, reason="out_of_memory") == 7


@DEVICES
async def test_a_single_unit_that_does_not_fit_answers_resource_exhausted_and_the_others_are_answered(engines, device):
    engine, model, replies = await one_batch_with(engines, device, "[oom]", runtime={"oom_text": "[oom]"})
    error = check_that_only_the_11th_failed(replies, "RESOURCE_EXHAUSTED")
    assert error.retry_after_s >= 1
    assert [run.texts for run in RECORD.runs(model)].count(("text 10 [oom]",)) == 1
    with pytest.raises(InferenceError, match="ran out of memory"):
        await bounded(engine.infer(request(model, "[oom] alone")))
    assert [run.texts for run in RECORD.runs(model)].count(("[oom] alone",)) == 2  # tried again after freeing
    assert engine.health().live_problem is None


@DEVICES
async def test_memory_that_is_short_for_a_moment_costs_no_request(engines, device):
    model = engines.model("faulty", oom_every=2)
    engine = await engines.start(load=[model], device=device)
    for number in range(20):
        assert (await bounded(engine.infer(request(model, f"text {number}")))).usage.input_tokens == 2


COSTS: dict[str, Any] = {"costs NaN": float("nan"), "costs more than anything": float("inf")}
OUTPUTS: dict[str, Any] = {
    "is too wide": np.ones(3, np.float32),
    "is too narrow": np.ones(1, np.float32),
    "has a row too many": np.ones((2, 2), np.float32),
    "is one number": np.ones((), np.float32),
    "is float64": np.ones(2, np.float64),
    "holds whole numbers": np.ones(2, np.int32),
    "holds objects": np.array([1.0, None], dtype=object),
    "is a list": [1.0, 1.0],
}


class Odd(Adapter):
    """An adapter that misbehaves as its class attribute says."""

    way = ""

    def __init__(self) -> None:
        self.facts = ModelFacts(outputs=("dense",), dims={"dense": 2})

    def prepare(self, items: Sequence[Item], task: Task) -> Sequence[Unit]:
        units = [Unit(number, 1, "k", payload=item.text) for number, item in enumerate(items)]
        if self.way == "forgets an item":
            return units[:-1]
        if self.way == "makes a free unit":
            units[0].cost = 0
        if self.way == "makes a unit of nothing":
            units[0].item = 7
        if self.way in COSTS:
            units[0].cost = COSTS[self.way]
        if self.way == "makes a key of a list":
            units[0].key = ["k"]
        if self.way == "counts NaN tokens":
            units[0].tokens = float("nan")
        return units

    def run(self, units: Sequence[Unit]) -> Any:
        if self.way == "exits" and any(unit.payload == "bad" for unit in units):
            raise SystemExit("the adapter wants to end the process")
        return [unit.payload for unit in units]

    def finish(self, units: Sequence[Unit], raw: Any) -> Sequence[ItemOutput]:
        if self.way == "gives no dense output":
            return [ItemOutput() for _ in units]
        if self.way in OUTPUTS:
            return [ItemOutput(dense=OUTPUTS[self.way]) for _ in units]
        outputs = [ItemOutput(dense=np.ones(2, np.float32)) for _ in units]
        return outputs[:-1] if self.way == "finishes too few" else outputs


def with_odd_family(monkeypatch, way):
    module = types.ModuleType("sie_test_odd")
    odd = type("Odd", (Odd,), {"way": way})
    module.load = lambda context: odd()
    monkeypatch.setitem(sys.modules, "sie_test_odd", module)
    family = ModelFamily("odd", "sie_test_odd:load", lambda card: None, weightless=True)
    return lambda plugins: dataclasses.replace(plugins, families={**plugins.families, "odd": family})


@pytest.mark.parametrize(
    "way",
    [
        "forgets an item",
        "makes a free unit",
        "makes a unit of nothing",
        "finishes too few",
        "gives no dense output",
        "makes a key of a list",
        "counts NaN tokens",
        *COSTS,
        *OUTPUTS,
    ],
)
async def test_an_adapter_that_breaks_its_contract_fails_the_request_and_is_named_in_the_log(
    engines, monkeypatch, caplog, way
):
    model = engines.model("odd", adapter="odd")
    engine = await engines.start(with_odd_family(monkeypatch, way), load=[model])
    with pytest.raises(InferenceError) as caught:
        await bounded(engine.infer(request(model, "a", "b")))
    assert caught.value.code == "INFERENCE_ERROR"
    assert "the adapter" in caplog.text
    assert engine.health().live_problem is None


async def test_an_adapter_that_wants_to_end_the_process_fails_its_request_alone(engines, monkeypatch):
    model = engines.model("odd", adapter="odd")
    engine = await engines.start(with_odd_family(monkeypatch, "exits"), load=[model])
    with pytest.raises(InferenceError, match="failed on this request"):
        await bounded(engine.infer(request(model, "bad")))
    assert len((await bounded(engine.infer(request(model, "good")))).items) == 1
    assert engine.health().live_problem is None


async def test_requests_past_their_deadline_are_dropped_by_the_devices_thread(engines):
    hold = engines.hold()
    gate, model = engines.model("gate", run_hold=str(hold)), engines.model("model")
    engine = await engines.start(load=[gate, model])
    blocker = asyncio.create_task(engine.infer(request(gate, "gate")))
    await until(lambda: RECORD.runs(gate))
    deadline = time.monotonic() + 1.0
    asked = asyncio.create_task(engine.infer(request(model, "late", deadline=deadline)))
    await until(lambda: queued(engine) == 1)
    time.sleep(max(0.0, deadline - time.monotonic()))  # noqa: ASYNC251 - only the device thread can see it
    hold.off()
    bound = time.monotonic() + BOUND_S
    while queued(engine) and time.monotonic() < bound:
        time.sleep(0.001)  # noqa: ASYNC251
    (reply,) = await bounded(asyncio.gather(asked, return_exceptions=True))
    await bounded(blocker)
    assert reply.code == "DEADLINE_EXCEEDED"
    assert sample(engine, "sie_dropped_units_total", model=model, reason="expired") == 1


async def test_a_failure_is_logged_with_the_request_it_belongs_to(engines, caplog):
    model = engines.model("faulty", runtime={"crash_text": "[poison]"})
    engine = await engines.start(load=[model])
    asked = request(model, "[poison]")
    with caplog.at_level(logging.ERROR), pytest.raises(InferenceError):
        await bounded(engine.infer(asked))
    assert [record.request_id for record in caplog.records if hasattr(record, "request_id")] == [asked.request_id]


async def test_a_finish_that_fails_is_logged_as_such(engines, caplog):
    model = engines.model("faulty", runtime={"finish_crash_text": "[poison]"})
    engine = await engines.start(load=[model])
    with pytest.raises(InferenceError):
        await bounded(engine.infer(request(model, "[poison]")))
    assert "failed in finishing its outputs" in caplog.text
    assert "forward pass" not in caplog.text


async def test_who_shares_a_batch_with_a_crash_that_nobody_waits_for_any_more_is_answered(engines):
    before, during = engines.hold(), engines.hold()
    gate = engines.model("gate", run_hold=str(before))
    model = engines.model("faulty", run_hold=str(during), runtime={"crash_text": "[poison]"})
    engine = await engines.start(load=[gate, model], pinned_models=(gate,))
    first = asyncio.create_task(engine.infer(request(gate, "gate")))
    await until(lambda: RECORD.runs(gate))
    crashing, other = (asyncio.create_task(engine.infer(request(model, text))) for text in ("[poison]", "other"))
    await until(lambda: queued(engine) == 2)
    before.off()
    await until(lambda: RECORD.runs(model))
    assert len(RECORD.runs(model)[0].texts) == 2
    crashing.cancel()
    await asyncio.wait([crashing], timeout=BOUND_S)
    during.off()
    assert len((await bounded(other)).items) == 1
    await bounded(first)
