"""Keeps room on the device: measures, asks the memory manager, has models and adapters unloaded. Event loop only.

It decides nothing itself but how long to wait. It must not know requests, nor how a model is loaded.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from typing import Literal

from sie_core.concurrency.pool import CpuPool
from sie_core.concurrency.threads import on_pool
from sie_core.contracts import DeviceMemory, HeldModel, ModelLoadError, Room
from sie_core.engine.metrics import EngineMetrics
from sie_core.engine.models.loras import split_key
from sie_core.engine.models.record import ModelSlot, Slots
from sie_core.engine.residency.checked_manager import CheckedManager
from sie_core.engine.residency.heap import trim_heap
from sie_core.engine.residency.memory import UNKNOWN, MemoryGauge
from sie_core.engine.residency.unloading import Unloader

log = logging.getLogger(__name__)

MONITOR_S = 1.0
"""How often memory and idle models are looked at with no load waiting."""
DRAIN_LIMIT_S = 30.0
"""How long a load waits until nobody uses a model that is to go; the next one is tried then."""
CLOSED_S = 1.0
"""How long a model in use that is to go turns new requests away at first, so that it comes to an end; each time that is
not enough, twice as long."""
OPEN_TIMES = 2.0
"""How many times as long it then takes requests again, unless it is unused earlier."""
ROOM_LIMIT_S = 60.0
"""How long a load waits for room at all."""
ASIDE_LIMIT_S = 10.0
"""How long measuring, or freeing caches, may take: a driver that hangs must not hold up loads for ever."""
FREE_AGAIN_S = 1.0
"""How often caches are freed at most: a pass over the garbage of a large process stops it for a tenth of a second."""
SPARED_S = 30.0
"""How long other models are spared after one was unloaded because batches of some model lacked memory."""

Reason = Literal["load", "background", "out_of_memory"]

clock = time.monotonic


class MemoryKeeper:
    """Carries out what a memory manager decides.

    Args:
        manager: Who decides.
        gauge: Measures the device.
        slots: The models.
        unloader: Unloads them.
        metrics: Counts evictions, and shows what was measured.
    """

    def __init__(
        self, manager: CheckedManager, gauge: MemoryGauge, slots: Slots, unloader: Unloader, metrics: EngineMetrics
    ) -> None:
        self._manager = manager
        self._gauge = gauge
        self._slots = slots
        self._unloader = unloader
        self._metrics = metrics
        self._making_room = False
        self._freed_at = -FREE_AGAIN_S
        self._made_way_at: dict[str, float] = {}
        self._making_way: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._aside = CpuPool("sie-memory", 1)
        self._monitor: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look after memory and idle models from now on."""
        self._aside.start()
        self._monitor = asyncio.create_task(self._watch())

    def cancel(self) -> None:
        """Stop looking after them."""
        if self._monitor is not None:
            self._monitor.cancel()

    def close(self) -> None:
        """Stop measuring, once no load is under way."""
        self._aside.close(0.0)

    async def measure(self) -> DeviceMemory:
        """Measure the device now."""
        try:
            memory = await asyncio.wait_for(on_pool(self._aside, self._gauge.measure), ASIDE_LIMIT_S)
        except TimeoutError:
            log.error("the device's memory could not be measured in %g s", ASIDE_LIMIT_S)
            return UNKNOWN
        self._metrics.measured(memory)
        return memory

    async def make_room(self, wanted: int, *, sure: bool, beside: str | None = None) -> None:
        """Unload what the manager says before a load that takes `wanted` bytes; one load at a time.

        Args:
            wanted: The bytes.
            sure: Whether that is known; where it is guessed, the load shows whether it fits.
            beside: The model that stays, because the load is of no use without it.

        Raises:
            ModelLoadError: `OOM`: there is no room, or models in use held it for too long.
        """
        until = clock() + ROOM_LIMIT_S
        stuck = {beside}
        self._making_room = True
        try:
            while True:
                memory = await self.measure()
                loose = [held for held in self._held() if held.id not in stuck]
                room = self._manager.make_room(wanted, memory, loose, clock())
                leaving = self._slots.leaving(unused=room.fits)
                if room == Room():
                    return
                if leaving and clock() < until:
                    await asyncio.wait(leaving, timeout=until - clock(), return_when=asyncio.FIRST_COMPLETED)
                    continue
                if not room.fits and not sure:
                    return
                if not room.fits or clock() > until:
                    raise ModelLoadError("OOM", _no_room(wanted, memory))
                if room.evict is not None:
                    if not await self._evict(room.evict, "load", DRAIN_LIMIT_S):
                        stuck.add(room.evict)
                else:
                    await asyncio.sleep(max(0.0, room.wait_s or 0.0))
        finally:
            self._making_room = False

    async def free_up_for_run(self, model: str) -> bool:
        """Do as `free_up` for a batch, but unload others rarely: what can never fit must not empty the device.

        Batches that fail at the same time share the one model that goes.
        """
        asked = clock()
        async with self._making_way[model]:
            made_way_at = self._made_way_at.get(model, -SPARED_S)
            if made_way_at > asked:
                return True
            if not await self.free_up(model, spare=clock() < made_way_at + SPARED_S):
                return False
            self._made_way_at[model] = clock()
            return True

    async def free_up(self, model: str, *, spare: bool = False) -> bool:
        """Free caches and unload one model because an allocation for `model` failed.

        Args:
            model: The id of the model that lacks memory.
            spare: Unload nobody.

        Returns:
            Whether a model was unloaded.
        """
        if clock() - self._freed_at >= FREE_AGAIN_S:
            self._freed_at = clock()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(on_pool(self._aside, self._gauge.collect), ASIDE_LIMIT_S)
        if spare:
            return False
        memory = await self.measure()
        others = [held for held in self._slots.held_models() if held.id != model]
        chosen = self._manager.out_of_memory(memory, others, clock())
        chosen = chosen or self._manager.out_of_memory(memory, self._slots.held_loras(), clock())
        return chosen is not None and await self._evict(chosen, "out_of_memory", 0.0)

    async def relieve(self) -> None:
        """Unload what the manager says with no load waiting; a load under way makes room itself."""
        memory = await self.measure()
        if self._making_room:
            return
        for chosen in self._manager.relieve(memory, self._held(), clock()):
            await self._evict(chosen, "background", 0.0)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(MONITOR_S)
            try:
                await self.relieve()
            except Exception:
                log.exception("looking after the device's memory failed; it goes on")

    def _held(self) -> list[HeldModel]:
        return self._slots.held_models() + self._slots.held_loras()

    async def _evict(self, chosen: str, reason: Reason, wait_s: float) -> bool:
        model, lora = split_key(chosen)
        slot = self._slots.known(model)
        if slot is None:
            return False
        return await (self._let_go(slot, lora, wait_s) if lora else self._unload(slot, reason, wait_s))

    async def _let_go(self, slot: ModelSlot, lora: str, wait_s: float) -> bool:
        if slot.state != "loaded" or slot.loaded is None or not await slot.loaded.loras.let_go(lora, wait_s):
            return False
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(on_pool(self._aside, trim_heap), ASIDE_LIMIT_S)
        log.info("%s: LoRA adapter %s let go for its memory", slot.resolved.id, lora)
        return True

    async def _unload(self, slot: ModelSlot, reason: Reason, wait_s: float) -> bool:
        if slot.pinned:
            return False
        unused_s = clock() - (slot.loaded.use.last_used if slot.loaded else clock())
        if not await self._drain(slot, wait_s):
            return False
        self._metrics.evictions.labels(slot.resolved.id, reason).inc()
        log.info("%s was unloaded (%s), unused for %.1f s", slot.resolved.id, reason, unused_s)
        return True

    async def _drain(self, slot: ModelSlot, wait_s: float) -> bool:
        """Unload a model when nobody uses it; beyond the first moment, new requests are turned away now and then."""
        until, closed_s = clock() + wait_s, CLOSED_S
        use = None if slot.loaded is None else slot.loaded.use
        while not await self._unloader.unload(slot, min(closed_s, max(0.0, until - clock())), evict=True):
            if use is None or clock() >= until:
                return False
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(use.unused(), min(OPEN_TIMES * closed_s, until - clock()))
            if slot.loaded is None or slot.loaded.use is not use:  # others unloaded it
                return False
            closed_s *= 2
        return True


def _no_room(wanted: int, memory: DeviceMemory) -> str:
    return (
        f"it takes about {wanted / 2**20:.0f} MiB, and of {memory.total / 2**20:.0f} MiB "
        f"{max(0, memory.total - memory.used) / 2**20:.0f} are free with no other model left to unload."
    )
