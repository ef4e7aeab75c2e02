"""What can be evicted from the device, and how a model drains and is unloaded. Event loop only."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sie_core.concurrency.threads import on_thread
from sie_core.contracts import Adapter, HeldModel
from sie_core.engine.metrics import EngineMetrics
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.models.record import ModelRecord, Registry, State
from sie_core.engine.residency.memory import DeviceMemoryMeter
from sie_core.engine.timeouts import Timeouts

log = logging.getLogger(__name__)


class Queues(Protocol):
    """Where loaded models have their queues."""

    def add_model(self, model: LoadedModel) -> None:
        """Serve a model's queue."""

    def remove_model(self, model: LoadedModel) -> None:
        """Stop serving a model's queue, which is empty."""


class Resident(Protocol):
    """Something that holds the device's memory: a loaded model or a loaded LoRA adapter."""

    def held(self) -> HeldModel:
        """Describe it to a memory manager."""
        ...

    async def evict(self, wait_s: float) -> bool:
        """Evict it once it has no lease; False where one is still held after `wait_s`, or where it is pinned."""
        ...


@dataclass(frozen=True, slots=True)
class ResidentModel:
    """A loaded model, as a `Resident`."""

    record: ModelRecord
    description: HeldModel
    unloader: Unloader

    def held(self) -> HeldModel:
        """Describe it to a memory manager."""
        return self.description

    async def evict(self, wait_s: float) -> bool:
        """Evict it, unless it is pinned: a plugin's memory manager may name pinned models."""
        return not self.record.pinned and await self.unloader.unload(self.record, wait_s, evict=True)


class Unloader:
    """Unloads models.

    Args:
        queues: Where loaded models have their queues.
        memory: Measures what an unload gives back.
        metrics: Counts unloads.
        timeouts: Bounds its waits.
    """

    def __init__(self, queues: Queues, memory: DeviceMemoryMeter, metrics: EngineMetrics, timeouts: Timeouts) -> None:
        self._queues = queues
        self._memory = memory
        self._metrics = metrics
        self._timeouts = timeouts
        self._left_behind: set[asyncio.Task[None]] = set()

    def residents(self, registry: Registry) -> dict[str, Resident]:
        """List the residents by id: every model that serves, and its LoRA adapters."""
        found: dict[str, Resident] = {}
        for record in registry.serving():
            if (loaded := record.ready()) is not None and (held := record.held()) is not None:
                found[held.id] = ResidentModel(record, held, self)
                found |= {lora.held().id: lora for lora in loaded.loras.residents()}
        return found

    async def unload(self, record: ModelRecord, wait_s: float | None = None, *, evict: bool = False) -> bool:
        """Unload a model once its last lease is released; new requests wait or are refused meanwhile.

        Requests that wait for a LoRA adapter of it are told to retry: its load may be waiting for this very unload.

        Args:
            record: The model's.
            wait_s: How long it may stay in use; beyond it the model serves on. None for no limit.
            evict: Whether it makes room for others; requests then wait and have it loaded again.

        Returns:
            Whether it is unloaded. False too where it was not loaded, or another unload was under way.
        """
        loaded = record.ready()
        if loaded is None:
            return False
        record.move(State.DRAINING, evict=evict)
        loaded.loras.cancel_loads()
        record.task = asyncio.create_task(self._unload(record, loaded, wait_s))
        del loaded
        await record.at_rest()
        return record.loaded is None

    async def close(self, records: list[ModelRecord]) -> None:
        """Unload every model at once, also under leases: the device has stopped."""
        leaving = [record for record in records if record.loaded is not None]
        for record in leaving:
            record.move(State.UNLOADING)
        try:
            async with asyncio.timeout(self._timeouts.close_unload_s):
                await asyncio.gather(*(self._give_back(record, _unload_adapter) for record in leaving))
        except TimeoutError:
            log.error("adapters that did not unload in %g s were left behind", self._timeouts.close_unload_s)
        for record in records:
            if record.state is State.UNLOADING:
                record.move(State.AVAILABLE)

    async def _unload(self, record: ModelRecord, loaded: LoadedModel, wait_s: float | None) -> None:
        if not await loaded.leases.idle_within(wait_s):
            log.info("%s is in use and stays loaded", record.resolved.id)
            record.move(State.READY)
            return
        self._queues.remove_model(loaded)
        del loaded  # the record holds the last reference
        record.move(State.UNLOADING)
        giving = asyncio.create_task(self._give_back(record, self._unload_and_free))
        await asyncio.wait([giving], timeout=self._timeouts.unload_s)
        if not giving.done():
            self._left_behind.add(giving)
            giving.add_done_callback(self._left_behind.discard)
            log.error(
                "%s did not unload in %g s; its thread is left behind", record.resolved.id, self._timeouts.unload_s
            )
        record.move(State.AVAILABLE)

    async def _give_back(self, record: ModelRecord, how: Callable[[ModelRecord, list[Adapter]], None]) -> None:
        # Unload the adapter on a thread, and drop the last reference to it.
        loaded = record.give_up_memory()
        if loaded is None:
            return
        loaded.loras.cancel_loads()
        adapters = [loaded.adapter]
        del loaded
        self._metrics.unloads.labels(record.resolved.id).inc()
        await on_thread(f"sie-unload-{record.resolved.id}", lambda: how(record, adapters))

    def _unload_and_free(self, record: ModelRecord, adapters: list[Adapter]) -> None:
        expected, before = record.memory_bytes or 0, self._memory.held()
        _unload_adapter(record, adapters)
        self._memory.free_caches()
        if before - self._memory.held() < expected / 2:  # its memory may be held by a reference cycle
            self._memory.collect()


def _unload_adapter(record: ModelRecord, adapters: list[Adapter]) -> None:
    # Unload the one adapter in the list, and remove it from there.
    try:
        adapters.pop().unload()
    except BaseException:
        log.exception("unloading %s failed", record.resolved.id)
