"""What a model is said to cost: what its load took, and nothing that something else took meanwhile."""

import asyncio
import sys
import threading

from sie_fake.memory import MEMORY

from sie_core.catalog import build_catalog
from sie_core.contracts import Device, DeviceMemory, ModelConfig, Profile, ResolvedModel
from sie_core.defaults import BUILTINS
from sie_core.memory.estimates import Estimates, Need
from sie_core.memory.meter import UNKNOWN, growth
from sie_core.plugins import discover
from tests.engine.conftest import bounded, request, until

MB = 1_000_000
MODEL = ResolvedModel("m", ModelConfig("m"), Profile("default"))


def after(grown, weights, estimate=0, estimates=None):
    """Record a load; return what the model is said to take."""
    need = Need(estimate, bool(estimate))
    return (estimates or Estimates(Device("cpu"))).after(MODEL, grown, weights, need)


def test_a_model_takes_what_its_load_took_and_never_less_than_its_weights():
    assert after(120, 100) == 120
    assert after(80, 100) == 100
    assert after(80, 0, 120) == 80
    assert after(-5, 0) == 0
    assert after(900, 0) == 900


def test_growth_that_weights_do_not_explain_is_not_the_model_s():
    assert after(900 * MB, 100 * MB) == 100 * MB
    assert after(900 * MB, 0, 110 * MB) == 110 * MB
    assert after(150 * MB, 100 * MB) == 150 * MB
    assert after(60 * MB, 1 * MB) == 60 * MB  # buffers and tokenizers beside small weights


def test_a_load_that_could_not_be_measured_takes_what_the_last_one_did_or_its_weights():
    estimates = Estimates(Device("cpu"))
    assert after(None, 100, estimates=estimates) == 100
    assert after(130, 100, estimates=estimates) == 130
    assert after(None, 100, estimates=estimates) == 130
    assert after(None, 0, 110) == 110
    assert after(None, 0) == 0


def test_growth_is_this_process_s_own_and_unknown_where_a_measurement_failed():
    assert growth(DeviceMemory(50, 100, 20), DeviceMemory(90, 100, 30)) == 10
    assert growth(DeviceMemory(50, 100), DeviceMemory(90, 100)) == 40
    assert growth(UNKNOWN, DeviceMemory(90, 100, 30)) is None
    assert growth(DeviceMemory(90, 100, 30), UNKNOWN) is None
    assert sys.maxsize == UNKNOWN.total


async def test_a_changed_config_is_not_estimated_by_what_the_old_one_took(engines):
    model = engines.model("model", memory_bytes=200 * MB)
    engine = await engines.start(device="fake", memory_limit_bytes=240 * MB, load=[model])
    engines.model("model", memory_bytes=30 * MB)  # fits beside the old one, which serves until it is there
    settings = engines.settings()
    engine.follow(build_catalog(settings, discover(settings, BUILTINS), before=engine.catalog))
    await until(lambda: engine.model(model).memory_bytes == 30 * MB)
    assert engine.model(model).last_error is None


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
