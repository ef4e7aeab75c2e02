"""Models that are made up, on a device of one gigabyte: the engine's residency over them, in virtual time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from sie_core.catalog import Catalog
from sie_core.catalog.configs.snapshot import make_catalog
from sie_core.catalog.fetching import FetchedModel
from sie_core.concurrency.leases import Leases
from sie_core.contracts import (
    DeviceMemory,
    Lora,
    LoraConfig,
    MemoryLimits,
    MemoryManager,
    ModelConfig,
    ModelFacts,
    OutOfDeviceMemory,
    Profile,
)
from sie_core.engine.metrics import EngineMetrics
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.models.loras import LoadedLora, Loras
from sie_core.engine.models.record import Registry
from sie_core.engine.residency.lifecycle import Lifecycle
from sie_core.engine.residency.residency import Residency
from sie_core.engine.residency.rollout import Rollout
from sie_core.engine.residency.unloader import Unloader
from sie_core.engine.timeouts import Timeouts
from sie_core.memory import LeastRecentlyUsed
from sie_core.memory.checked import CheckedManager
from sie_core.memory.estimates import Estimates, Need

from .virtual_time import VirtualTimeLoop

MB = 1_000_000
SIZE = 1000 * MB
NAMES = ("a", "b", "c")
"""LoRA adapters of every model."""
LORA_S = 0.5


@dataclass
class Device:
    """A device of one gigabyte that counts what is held on it; also the meter, and the thread that asks it."""

    elsewhere: int = 0
    # Bytes that are free and counted as used until they are given back.
    kept: int = 0
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
        held = self._device.held() + self._device.kept
        return DeviceMemory(held + self._device.elsewhere, SIZE, held)

    async def collect(self) -> None:
        self._device.kept = 0

    async def free_caches(self) -> None:
        self._device.kept = 0


class Adapter:
    """Holds its bytes until it is unloaded."""

    def __init__(self, world: World, size: int) -> None:
        self._world, self._size = world, size
        world.device.take(size)

    def unload(self) -> None:
        self._world.loop.sleep(self._world.unload_s())
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
    """The engine's residency over models of given sizes; it is the loader too."""

    bar = None
    """Of the loader: there is no terminal."""

    def __init__(
        self,
        loop: VirtualTimeLoop,
        sizes: Mapping[str, int],
        *,
        pinned: frozenset[str] = frozenset(),
        manager: MemoryManager | None = None,
        idle_s: float | None = None,
    ) -> None:
        self.loop = loop
        self.sizes = sizes
        self.version = dict.fromkeys(sizes, 1)
        self.device = Device()
        self.queues = Queues()
        self.failures: dict[str, BaseException] = {}
        clock, metrics, timeouts = loop.time, EngineMetrics(detailed=False), Timeouts()
        self.registry = Registry(pinned, clock)
        self.unloader = Unloader(self.queues, self.device, metrics, timeouts)  # type: ignore[arg-type]
        checked = CheckedManager(manager or LeastRecentlyUsed(MemoryLimits(0.85, idle_s)), self._broken)
        memory: Any = MemoryNow(self.device)
        self.residency = Residency(
            checked, memory, self.registry, self.unloader, metrics, self._broken, timeouts, clock
        )
        loader: Any = self
        estimates = Estimates(SimpleNamespace(kind="fake"))  # type: ignore[arg-type]
        self.lifecycle = Lifecycle(
            self.registry, loader, self.residency, self.unloader, estimates, self.queues, metrics, timeouts, clock
        )
        self.rollout = Rollout(self.registry, self.lifecycle, clock)
        self.catalog = self.snapshot(1)

    @staticmethod
    def _broken(*told: object) -> None:
        raise AssertionError(told)

    def fetch_s(self) -> float:
        """Seconds a fetch takes."""
        return 0.0

    def load_s(self) -> float:
        """Seconds a load takes."""
        return 1.0

    def unload_s(self) -> float:
        """Seconds an unload takes."""
        return 0.0

    def snapshot(self, epoch: int) -> Catalog:
        """Make the catalog of the models there are now, each at its version."""
        loras = {name: LoraConfig(name) for name in NAMES}
        return make_catalog(
            epoch,
            [
                ModelConfig(name, profiles={"default": Profile("default", loadtime={"version": version})}, loras=loras)
                for name, version in self.version.items()
            ],
        )

    def fetch(self, resolved, report, progress):
        """Be the loader: find weights."""
        self.loop.sleep(self.fetch_s())
        report("fetch", 0.0)
        self._fail(resolved.id, "fetch")
        return FetchedModel(resolved, None, None, None, ())  # type: ignore[arg-type]

    def precision(self, resolved):
        """Be the loader: tell what models compute in."""
        return "float32"

    def load(self, fetched, report):
        """Be the loader: load them."""
        self.loop.sleep(self.load_s())
        self._fail(fetched.resolved.id, "load")
        size = self.sizes[fetched.resolved.id]
        adapter = Adapter(self, size)
        report("load", 1.0)
        leases = Leases(self.loop.time)
        model = LoadedModel(
            resolved=fetched.resolved,
            family=SimpleNamespace(id="world"),
            adapter=adapter,
            facts=ModelFacts(memory_bytes=size),
            limits=None,
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

    def lora_s(self) -> float:
        """Seconds the load of an adapter takes."""
        return LORA_S

    async def _lora(self, model: LoadedModel, name: str) -> LoadedLora:
        async def load() -> Lora:
            with model.leases.acquire():
                await asyncio.sleep(self.lora_s())
            return Lora(name, None, 0)

        need = Need(5 * MB, True)
        placed = await self.residency.place(f"{name} of {model.id}", lambda: need, load, 0.5, model=model.id)
        return LoadedLora(placed.result, 0.1)

    async def close(self) -> None:
        """Close as an engine does whose device has stopped."""
        self.residency.stop()
        self.rollout.close()
        await self.lifecycle.close()
        self.residency.close()
