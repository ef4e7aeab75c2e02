"""Unloads models: waits until nobody uses them, then gives back what they hold. Event loop only.

Every wait is bounded. It must not know why a model is unloaded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from sie_core.concurrency.threads import on_thread
from sie_core.contracts import Adapter
from sie_core.engine.metrics import EngineMetrics
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.models.record import ModelSlot
from sie_core.engine.residency.memory import MemoryGauge

log = logging.getLogger(__name__)

UNLOAD_LIMIT_S = 30.0
"""How long an adapter may take to unload; beyond it its thread is left behind, and nobody waits for it."""
CLOSE_LIMIT_S = 5.0
"""How long a close waits for adapters to unload; the process ends anyway, and frees what they hold."""


class Queues(Protocol):
    """Who serves the queues of loaded models."""

    def add_model(self, model: LoadedModel) -> None:
        """Serve a model's queue."""

    def remove_model(self, model: LoadedModel) -> None:
        """Stop serving it; nothing waits in it."""


class Unloader:
    """Takes models from their slots."""

    def __init__(self, queues: Queues, gauge: MemoryGauge, metrics: EngineMetrics) -> None:
        self._queues = queues
        self._gauge = gauge
        self._metrics = metrics
        self._left_behind: set[asyncio.Task[None]] = set()
        self.given_back = 0
        """How many models have given back what they held."""

    async def unload(self, slot: ModelSlot, wait_s: float | None = None, *, evict: bool = False) -> bool:
        """Unload a loaded model once nobody uses it; new requests are turned away meanwhile.

        Requests that wait for a LoRA adapter of it are told to retry: its load may be waiting for this very unload.

        Args:
            slot: The model's.
            wait_s: How long it may stay in use; beyond it the model stays loaded. None for no limit.
            evict: Whether it makes room for others; requests then wait and have it loaded again.

        Returns:
            Whether it is unloaded. False too where it was not loaded, or another unload was under way.
        """
        if slot.state != "loaded" or slot.loaded is None:
            return False
        slot.state, slot.evicted = "unloading", evict
        slot.loaded.loras.give_up()
        slot.change = asyncio.create_task(self._unload(slot, wait_s))
        await asyncio.wait([slot.change])
        return slot.loaded is None

    async def close(self, slots: list[ModelSlot]) -> None:
        """Unload every model at once; the device has stopped."""
        unloads = [self._give_back(slot, _unload_adapter) for slot in slots]
        try:
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await asyncio.gather(*unloads)
        except TimeoutError:
            log.error("adapters that did not unload in %g s were left behind", CLOSE_LIMIT_S)

    async def _unload(self, slot: ModelSlot, wait_s: float | None) -> None:
        try:
            if slot.loaded is not None and not await _unused(slot.loaded, wait_s):
                slot.state = "loaded"
                log.info("%s is in use and stays loaded", slot.resolved.id)
                return
            if slot.loaded is not None:
                self._queues.remove_model(slot.loaded)
            giving = asyncio.create_task(self._give_back(slot, self._unload_and_free))
            await asyncio.wait([giving], timeout=UNLOAD_LIMIT_S)
            if not giving.done():
                self._left_behind.add(giving)
                giving.add_done_callback(self._left_behind.discard)
                log.error("%s did not unload in %g s; its thread is left behind", slot.resolved.id, UNLOAD_LIMIT_S)
            slot.state = "available"
        finally:
            slot.change = None

    async def _give_back(self, slot: ModelSlot, how: Callable[[ModelSlot, list[Adapter]], None]) -> None:
        """Let the adapter free what it holds, and then lose its last reference."""
        if slot.loaded is None:
            return
        slot.loaded.loras.give_up()
        slot.last_used = slot.used_at()
        adapters, slot.loaded = [slot.loaded.adapter], None
        self._metrics.unloads.labels(slot.resolved.id).inc()
        await on_thread(f"sie-unload-{slot.resolved.id}", lambda: how(slot, adapters))
        self.given_back += 1

    def _unload_and_free(self, slot: ModelSlot, adapters: list[Adapter]) -> None:
        expected, before = slot.memory_bytes or 0, self._gauge.held()
        _unload_adapter(slot, adapters)
        self._gauge.free_caches()
        if before - self._gauge.held() < expected / 2:  # what an adapter holds may be in a cycle
            self._gauge.collect()


async def _unused(model: LoadedModel, wait_s: float | None) -> bool:
    try:
        async with asyncio.timeout(wait_s):
            await model.use.unused()
    except TimeoutError:
        return False
    return True


def _unload_adapter(slot: ModelSlot, adapters: list[Adapter]) -> None:
    """Unload the one adapter in the list, and take it out."""
    try:
        adapters.pop().unload()
    except BaseException:
        log.exception("unloading %s failed", slot.resolved.id)
