"""Unloads models: evicted, asked to, or at the close. Event loop only."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from sie_core.concurrency.tasks import Tasks
from sie_core.concurrency.threads import on_thread
from sie_core.contracts import Adapter
from sie_core.engine.metrics import EngineMetrics
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.models.record import ModelRecord, Registry, State
from sie_core.engine.timeouts import Timeouts
from sie_core.memory.meter import DeviceMemoryMeter
from sie_core.memory.residents import Resident

log = logging.getLogger(__name__)


class Queues(Protocol):
    """Creates and removes the queues of loaded models."""

    def add_model(self, model: LoadedModel) -> None:
        """Serve a model's queue."""

    def remove_model(self, model: LoadedModel) -> None:
        """Stop serving a model's queue, which is empty."""


@dataclass(slots=True, eq=False)
class Unloader:
    """Unloads models, and measures the memory that each unload frees."""

    queues: Queues
    memory: DeviceMemoryMeter
    metrics: EngineMetrics
    timeouts: Timeouts
    # Set before a close: no unload may begin between the close's look at unloads under way and its own.
    closed: bool = False
    _giving: Tasks = field(default_factory=Tasks)

    def residents(self, registry: Registry) -> dict[str, Resident]:
        """List the residents by id: every model that serves, and its LoRA adapters."""
        found: dict[str, Resident] = {}
        for record in registry.serving():
            if (loaded := record.ready()) is not None and (held := record.held()) is not None:
                found[held.id] = Resident(held, partial(self._evict, record))
                found |= loaded.loras.residents()
        return found

    async def unload(self, record: ModelRecord, wait_s: float | None = None, *, evict: bool = False) -> bool:
        """Unload a model once its last lease is released; until then new requests wait or are refused.

        Args:
            record: The model's.
            wait_s: How long it may stay in use; afterwards the model goes on serving. None for no limit.
            evict: Whether it makes room for others; requests then wait and have it loaded again.

        Returns:
            Whether it is unloaded. False too if it was not loaded, or another unload was under way.
        """
        loaded = record.ready()
        if loaded is None or self.closed:
            return False
        record.move(State.DRAINING, evict=evict)
        # Requests that wait for one of its LoRA adapters are asked to retry: that load may be waiting for this very
        # unload.
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
            async with asyncio.timeout(self.timeouts.close_unload_s):
                await asyncio.gather(*(self._give_back(record, free=False) for record in leaving))
        except TimeoutError:
            log.error("adapters that did not unload in %g s were left behind", self.timeouts.close_unload_s)
        for record in records:
            if record.state is State.UNLOADING:
                record.move(State.AVAILABLE)

    async def _evict(self, record: ModelRecord, wait_s: float) -> bool:
        # A plugin's memory manager may name pinned models.
        return not record.pinned and await self.unload(record, wait_s, evict=True)

    async def _unload(self, record: ModelRecord, loaded: LoadedModel, wait_s: float | None) -> None:
        if not await loaded.leases.idle_within(wait_s):
            log.info("%s is in use and stays loaded", record.resolved.id)
            record.move(State.READY)
            return
        self.queues.remove_model(loaded)
        del loaded  # the record holds the last reference
        record.move(State.UNLOADING)
        giving = self._giving.start(self._give_back(record, free=True))
        await asyncio.wait([giving], timeout=self.timeouts.unload_s)
        if not giving.done():
            log.error(
                "%s did not unload in %g s; its thread is left behind", record.resolved.id, self.timeouts.unload_s
            )
        record.move(State.AVAILABLE)

    async def _give_back(self, record: ModelRecord, *, free: bool) -> None:
        # Unload the adapter on a thread, drop the last reference to it and, with `free`, release its memory.
        loaded = record.give_up_memory()
        if loaded is None:
            return
        loaded.loras.cancel_loads()
        adapters = [loaded.adapter]
        del loaded
        self.metrics.unloads.labels(record.resolved.id).inc()
        await on_thread(f"sie-unload-{record.resolved.id}", lambda: self._unload_now(record, adapters, free))

    def _unload_now(self, record: ModelRecord, adapters: list[Adapter], free: bool) -> None:
        # Unload the one adapter in the list, and remove it from there.
        before = self.memory.held() if free else 0
        try:
            adapters.pop().unload()
        except BaseException:
            log.exception("unloading %s failed", record.resolved.id)
        if free:
            self.memory.free_caches()
            if before - self.memory.held() < (record.memory_bytes or 0) / 2:  # a reference cycle may hold its memory
                self.memory.collect()
