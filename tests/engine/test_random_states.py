"""Twenty-four models through thousands of random steps, in virtual time: loads, evictions, config changes, failures."""

from __future__ import annotations

import asyncio
import random
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sie_core.catalog import Catalog
from sie_core.catalog.configs.snapshot import make_catalog
from sie_core.contracts import (
    DeviceMemory,
    InferenceError,
    Lora,
    LoraConfig,
    MemoryLimits,
    ModelConfig,
    ModelLoadError,
    OutOfDeviceMemory,
    Profile,
)
from sie_core.engine.metrics import EngineMetrics
from sie_core.engine.models.lease import Leases
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.models.loras import LoadedLora, Loras
from sie_core.engine.models.record import RESTING, Registry, State
from sie_core.engine.residency.lifecycle import Lifecycle
from sie_core.engine.residency.loader import Fetched
from sie_core.engine.residency.memory import Estimates, Need
from sie_core.engine.residency.residency import Residency
from sie_core.engine.residency.residents import Unloader
from sie_core.engine.residency.rollout import Rollout
from sie_core.engine.timeouts import Timeouts
from sie_core.memory import LeastRecentlyUsed
from sie_core.memory.checked import CheckedManager

from .virtual_time import VirtualTimeLoop

MB = 1_000_000
MODELS = 24
STEPS = 1000
LONGEST_RUN_S = 50_000.0
"""Virtual seconds."""
SIZE = 1000 * MB
NAMES = ("a", "b", "c")
EXPECTED = {
    "MODEL_LOADING",
    "MODEL_NOT_LOADED",
    "MODEL_LOAD_FAILED",
    "MODEL_NOT_FOUND",
    "LORA_LOADING",
    "RESOURCE_EXHAUSTED",
    "QUEUE_UNAVAILABLE",
}


@dataclass
class Device:
    """A device of one gigabyte that counts what is held on it; also the meter, and the thread that asks it."""

    elsewhere: int = 0
    _held: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, size: int) -> None:
        with self._lock:
            if self._held + size > SIZE:
                raise OutOfDeviceMemory
            self._held += size

    def give_back(self, size: int) -> None:
        with self._lock:
            self._held -= size

    def held(self) -> int:
        return self._held

    def free_caches(self) -> None: ...

    def collect(self) -> None: ...


class MemoryNow:
    """Measures without a thread."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def start(self) -> None: ...

    def stop(self) -> None: ...

    async def measure(self) -> DeviceMemory:
        await asyncio.sleep(0)
        held = self._device.held()
        return DeviceMemory(held + self._device.elsewhere, SIZE, held)

    async def collect(self) -> None: ...

    async def free_caches(self) -> None: ...


class Adapter:
    """Holds its bytes until it is unloaded."""

    def __init__(self, world: World, size: int) -> None:
        self._world, self._size = world, size
        world.device.take(size)

    def unload(self) -> None:
        self._world.loop.sleep(self._world.random.random())
        self._world.device.give_back(self._size)


class Queues:
    """The models whose queues are served."""

    def __init__(self) -> None:
        self.served: list[LoadedModel] = []

    def add_model(self, model: LoadedModel) -> None:
        assert model not in self.served
        self.served.append(model)

    def remove_model(self, model: LoadedModel) -> None:
        assert not model.leases.count, f"{model.id} is unloaded under a lease"
        self.served.remove(model)


class World:
    """The engine's residency over made-up models; it is the loader too."""

    def __init__(self, loop: VirtualTimeLoop, seed: int) -> None:
        self.loop = loop
        self.random = random.Random(seed)
        self.device = Device()
        self.queues = Queues()
        self.failures: dict[str, BaseException] = {}
        self.answered = self.asked = 0
        self.sizes = {number: self.random.randrange(10, 400) * MB for number in range(MODELS)}
        self.version = dict.fromkeys(range(MODELS), 1)
        clock = loop.time
        metrics, timeouts = EngineMetrics(detailed=False), Timeouts()
        self.registry = Registry({"m0"}, clock)
        self.unloader = Unloader(self.queues, self.device, metrics, timeouts)  # type: ignore[arg-type]
        manager = CheckedManager(LeastRecentlyUsed(MemoryLimits(0.85, 300.0)), self._broken)
        self.residency = Residency(
            manager, MemoryNow(self.device), self.registry, self.unloader, metrics, self._broken, timeouts, clock
        )  # type: ignore[arg-type]
        self.lifecycle = Lifecycle(
            self.registry,
            self,
            self.residency,
            self.unloader,
            Estimates(SimpleNamespace(kind="fake")),  # type: ignore[arg-type]
            self.queues,
            metrics,
            timeouts,
            clock,
        )  # type: ignore[arg-type]
        self.rollout = Rollout(self.registry, self.lifecycle, clock)
        self.catalog = self.snapshot(1)

    @staticmethod
    def _broken(*told: object) -> None:
        raise AssertionError(told)

    def snapshot(self, epoch: int) -> Catalog:
        """Make the catalog of the models there are now, each at its version."""
        loras = {name: LoraConfig(name) for name in NAMES}
        return make_catalog(
            epoch,
            [
                ModelConfig(
                    f"m{number}",
                    profiles={"default": Profile("default", loadtime={"version": version})},
                    loras=loras,
                )
                for number, version in self.version.items()
            ],
        )

    def fetch(self, resolved, report, progress):
        """Be the loader: find weights."""
        self.loop.sleep(self.random.choice((0.0, 0.1, 5.0)))
        report("fetch", 0.0)
        self._fail(resolved.id, "fetch")
        return Fetched(resolved, None, None, None, (), "float32")  # type: ignore[arg-type]

    def load(self, fetched, report):
        """Be the loader: load them."""
        self.loop.sleep(self.random.choice((0.0, 0.5, 3.0)))
        self._fail(fetched.resolved.id, "load")
        size = self.sizes[int(fetched.resolved.id[1:])]
        adapter = Adapter(self, size)
        report("load", 1.0)
        leases = Leases(self.loop.time)
        model = LoadedModel(
            resolved=fetched.resolved,
            family=None,
            adapter=adapter,
            facts=SimpleNamespace(memory_bytes=size),
            new_policy=lambda: None,
            metrics=None,
            converters=None,
            loras=Loras(
                fetched.resolved.id, fetched.resolved.config.loras, 2, lambda name: self._lora(model, name), True,
                Timeouts(), self.loop.time,
            ),
            leases=leases,
        )  # type: ignore[arg-type]  # fmt: skip
        return model

    def _fail(self, model: str, stage: str) -> None:
        error = self.failures.pop(f"{model} {stage}", None)
        if error is not None:
            raise error

    async def _lora(self, model: LoadedModel, name: str) -> LoadedLora:
        async def load() -> Lora:
            with model.leases.acquire():
                await asyncio.sleep(self.random.random())
            return Lora(name, None, 0)

        need = Need(5 * MB, True)
        placed = await self.residency.place(f"{name} of {model.id}", lambda: need, load, model=model.id)
        return LoadedLora(placed.result, 0.1)

    async def request(self, number: int) -> None:
        """Ask for a model, perhaps with an adapter, and use it for a while."""
        self.asked += 1
        try:
            resolved = self.catalog.resolve(f"m{number}")
            model, lease = await self.lifecycle.acquire(resolved, self.random.choice((0.0, 2.0, 500.0)))
            with lease:
                assert model in self.queues.served
                if self.random.random() < 0.3:
                    _, held = await model.loras.acquire(self.random.choice(NAMES), self.random.choice((0.0, 100.0)))
                    with held:
                        await asyncio.sleep(self.random.random())
                await asyncio.sleep(self.random.choice((0.0, 0.2, 10.0)))
                assert model in self.queues.served, "a model was unloaded under a request"
        except InferenceError as error:
            self.expect(error)
        self.answered += 1

    @staticmethod
    def expect(error: InferenceError) -> None:
        assert error.code in EXPECTED, error

    async def load_now(self, number: int) -> None:
        try:
            await self.lifecycle.load(self.catalog.resolve(f"m{number}"))
        except InferenceError as error:
            self.expect(error)

    async def unload_now(self, number: int) -> None:
        try:
            await self.lifecycle.unload(self.catalog.resolve(f"m{number}"), self.random.choice((0.0, 20.0)))
        except InferenceError as error:
            self.expect(error)

    def change_configs(self) -> None:
        number = self.random.randrange(MODELS)
        if number in self.version and self.random.random() < 0.4:
            del self.version[number]
        else:
            self.version[number] = self.random.randrange(1_000_000)
        before, self.catalog = self.catalog, self.snapshot(self.catalog.epoch + 1)
        self.rollout.follow(before, self.catalog)

    def break_something(self) -> None:
        error = self.random.choice(
            (ModelLoadError("NETWORK", "cut"), ModelLoadError("CONFIG", "odd"), OutOfDeviceMemory(), ValueError("bug"))
        )
        self.failures[f"m{self.random.randrange(MODELS)} {self.random.choice(('fetch', 'load'))}"] = error

    def check(self) -> None:
        for record in self.registry:
            assert (record.loaded is not None) <= (record.state in (State.READY, State.DRAINING, State.UNLOADING))
            assert (record.state is State.READY) <= (record.loaded in self.queues.served)
            assert (record.task is None) == (record.state in RESTING)
        serving = [record.resolved.id for record in self.registry.serving()]
        assert len(serving) == len(set(serving))
        assert 0 <= self.device.held() <= SIZE

    async def run(self, steps: int) -> None:
        await self.residency.start()
        tasks: set[asyncio.Task[None]] = set()
        acts = (self.request,) * 12 + (self.load_now, self.unload_now)
        for _ in range(steps):
            chance = self.random.random()
            if chance < 0.85:
                number = min(MODELS - 1, int(self.random.expovariate(0.2)))
                tasks.add(asyncio.create_task(self.random.choice(acts)(number)))
            elif chance < 0.90:
                self.change_configs()
            elif chance < 0.95:
                self.break_something()
            else:
                self.device.elsewhere = self.random.choice((0, 0, 100 * MB, 900 * MB))
            await asyncio.sleep(self.random.choice((0.0, 0.0, 0.05, 1.0, 20.0)))
            self.check()
            for task in [task for task in tasks if task.done()]:
                task.result()
                tasks.discard(task)
        if self.random.random() < 0.5:  # else it is closed with everything under way
            await asyncio.gather(*tasks)
        self.residency.stop()
        closing = asyncio.create_task(self.close())
        await asyncio.gather(*tasks, closing)
        assert self.answered == self.asked
        for _ in range(100):  # loads that a close cancelled while they worked end by themselves
            await asyncio.sleep(1.0 if self.device.held() else 0.0)
        assert self.device.held() == 0
        assert {record.state for record in self.registry} <= RESTING
        assert [record for record in self.registry if record.loaded is not None] == []

    async def close(self) -> None:
        self.rollout.close()
        await self.lifecycle.close()
        self.residency.close()


@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
@pytest.mark.timeout(300)
def test_ten_thousand_random_steps_are_legal_leak_nothing_and_answer_everybody(seed: int) -> None:
    loop = VirtualTimeLoop()
    broken: list[object] = []
    loop.set_exception_handler(lambda _, context: broken.append(context))
    try:
        loop.run_until_complete(asyncio.wait_for(World(loop, seed).run(STEPS), LONGEST_RUN_S))
    finally:
        loop.close()
    assert broken == []
