"""What a model is said to cost: what its load took, and nothing that something else took meanwhile."""

import asyncio
import sys
import threading

import pytest
from sie_fake.memory import MEMORY

from sie_core.contracts import Device, DeviceMemory
from sie_core.engine.residency.estimates import Costs, growth
from sie_core.engine.residency.memory import UNKNOWN

from .conftest import bounded, request, until

MB = 1_000_000


@pytest.fixture
def costs():
    """Costs of a device on which a model of the family `f` was loaded before."""
    made = Costs(Device("cpu"))
    made.record("first", "f", 500, 0, 0)
    return made


def test_a_load_costs_what_it_took_and_never_less_than_its_weights(costs):
    assert costs.record("m", "f", 120, 100, 0) == 120
    assert costs.record("m", "f", 80, 100, 0) == 100
    assert costs.record("m", "f", 80, 0, 120) == 80
    assert costs.record("m", "f", -5, 0, 0) == 0


def test_the_first_load_of_a_family_is_counted_since_its_libraries_stay(costs):
    assert costs.record("m", "new", 900, 100, 0) == 100
    assert costs.record("n", "newer", 900, 0, 110) == 110
    assert costs.record("o", "newest", 900, 0, 0) == 900


def test_a_load_that_was_not_alone_costs_what_it_did_before_or_what_its_weights_take(costs):
    assert costs.record("m", "f", None, 100, 0) == 100
    assert costs.record("n", "f", None, 0, 110) == 110
    assert costs.record("m", "f", 130, 100, 0) == 130
    assert costs.record("m", "f", None, 100, 0) == 130
    assert costs.record("o", "f", None, 0, 0) == 0


def test_growth_is_this_process_s_own_and_unknown_where_a_measurement_failed():
    assert growth(DeviceMemory(50, 100, 20), DeviceMemory(90, 100, 30)) == 10
    assert growth(DeviceMemory(50, 100), DeviceMemory(90, 100)) == 40
    assert growth(UNKNOWN, DeviceMemory(90, 100, 30)) is None
    assert growth(DeviceMemory(90, 100, 30), UNKNOWN) is None
    assert sys.maxsize == UNKNOWN.total


async def test_models_that_are_asked_for_at_once_are_each_said_to_cost_their_own(engines):
    sizes = {engines.model(f"m{size}", memory_bytes=size * MB, load_s=0.01): size * MB for size in (10, 20, 40, 80)}
    engine = await engines.start(device="fake", load=[engines.model("first")])
    await bounded(asyncio.gather(*(engine.infer(request(model, "text")) for model in sizes)))
    assert {model: engine.model(model).memory_bytes for model in sizes} == sizes


async def test_what_a_batch_takes_while_a_model_loads_is_not_the_model_s(engines):
    hold = engines.hold()
    busy = engines.model("busy", run_bytes_per_cost=300 * MB, runtime={"latency_ms": 300.0})
    model = engines.model("model", memory_bytes=50 * MB, load_hold=str(hold))
    engine = await engines.start(device="fake", load=[busy])
    loading = asyncio.create_task(engine.load(model))
    await until(lambda: f"sie-load-{model}" in {thread.name for thread in threading.enumerate()})
    running = asyncio.create_task(engine.infer(request(busy, "text")))
    await until(lambda: MEMORY.used == 300 * MB)
    hold.off()
    await bounded(loading)
    assert engine.model(model).memory_bytes == 50 * MB
    await bounded(running)
