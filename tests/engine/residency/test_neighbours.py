"""Other processes hold the device's memory: models load slowly, stay, and `/health` says why."""

from dataclasses import dataclass

import pytest
from sie_fake.device import FakeProbe
from sie_fake.memory import MEMORY

from sie_core.contracts import DeviceMemory
from sie_core.engine.timeouts import Timeouts
from sie_core.memory import lru
from tests.engine.conftest import bounded, request, sample, until

MB = 1_000_000
QUICK = Timeouts(monitor_s=0.01)
NOTE = "other processes hold"


@dataclass
class Neighbour:
    """What other processes hold of the emulated gigabyte."""

    held: int = 0

    def memory(self, probe, device):
        return DeviceMemory(MEMORY.used + self.held, MEMORY.total, MEMORY.used)


@pytest.fixture
def neighbour(monkeypatch):
    other = Neighbour()
    monkeypatch.setattr(FakeProbe, "memory", lambda probe, device: other.memory(probe, device))
    monkeypatch.setattr(lru, "GROW_S", 0.05)
    return other


async def take_turns(engine, models, times):
    for _ in range(times):
        for model in models:
            assert len((await bounded(engine.infer(request(model, "text")))).items) == 1


def counted(engine, name, models, **labels):
    return [sample(engine, name, model=model, **labels) for model in models]


def evictions(engine, models):
    return sum(sum(counted(engine, "sie_model_evictions_total", models, reason=why)) for why in ("load", "background"))


def crowded(engine):
    return [note for note in engine.health().notes if NOTE in note]


@pytest.mark.parametrize("theirs", [800 * MB, 1000 * MB], ids=["half of the rest", "all but some"])
async def test_models_that_fit_beside_a_neighbour_are_loaded_once(engines, neighbour, theirs):
    size = 60 * MB if theirs == 800 * MB else 20 * MB
    models = [engines.model(name, memory_bytes=size) for name in "abc"]
    engine = await engines.start(device="fake", timeouts=QUICK)
    neighbour.held = theirs
    await take_turns(engine, models, 5)
    assert counted(engine, "sie_model_loads_total", models, outcome="ok") == [1, 1, 1]
    assert evictions(engine, models) == 0
    await until(lambda: crowded(engine))
    assert engine.health().live_problem is None
    neighbour.held = 0
    await until(lambda: not crowded(engine))


async def test_a_neighbour_that_comes_and_goes_unloads_nobody_who_is_used(engines, neighbour):
    models = [engines.model(name, memory_bytes=60 * MB) for name in "abc"]
    engine = await engines.start(device="fake", load=models, timeouts=QUICK)
    for turn in range(6):
        neighbour.held = 850 * MB * (turn % 2)
        await until(lambda turn=turn: bool(crowded(engine)) is bool(turn % 2))
        await take_turns(engine, models, 1)
    assert evictions(engine, models) == 0


async def test_models_that_a_neighbour_leaves_no_room_for_take_turns(engines, neighbour):
    models = [engines.model(name, memory_bytes=100 * MB) for name in "abc"]
    engine = await engines.start(device="fake", timeouts=QUICK)
    neighbour.held = 900 * MB
    await take_turns(engine, models, 2)
    assert MEMORY.used == 100 * MB
