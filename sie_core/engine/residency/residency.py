"""The residency of models on the device. All loads onto it and all evictions go through here. Event loop only.

Models are loaded one at a time, so that the memory of each can be measured. A LoRA adapter that fits without an
eviction waits neither for other loads nor for draining models.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Container
from functools import partial
from typing import Generic, Literal, NamedTuple, TypeVar

from sie_core.contracts import DeviceLost, DeviceMemory, ModelLoadError, OutOfDeviceMemory, Room
from sie_core.engine.metrics import EngineMetrics
from sie_core.engine.models.record import Registry
from sie_core.engine.requests.errors import OUT_OF_MEMORY
from sie_core.engine.residency.unloader import Unloader
from sie_core.engine.timeouts import Timeouts
from sie_core.logs import trace_apart
from sie_core.memory.checked import CheckedManager
from sie_core.memory.estimates import Need
from sie_core.memory.meter import UNKNOWN, MemoryThread, growth
from sie_core.memory.residents import Load, Loads

log = logging.getLogger(__name__)

Reason = Literal["load", "background", "out_of_memory"]
Result = TypeVar("Result")


class Placed(NamedTuple, Generic[Result]):
    """The result of a load."""

    result: Result
    # Growth of the device's use in bytes; None if the probe cannot tell, or another load contributed.
    grown: int | None
    # The estimate before the load.
    need: Need


class Residency:
    """Makes room on one device: a memory manager decides what to evict, and this class does it."""

    def __init__(
        self,
        manager: CheckedManager,
        memory: MemoryThread,
        registry: Registry,
        unloader: Unloader,
        metrics: EngineMetrics,
        device_lost: Callable[[DeviceLost], None],
        timeouts: Timeouts,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._manager, self.memory = manager, memory
        self._registry = registry
        self._residents = partial(unloader.residents, registry)
        self._metrics = metrics
        self._device_lost = device_lost  # called when a load finds that the device is lost
        self._timeouts, self._clock = timeouts, clock
        self._load_lock, self._run_lock = asyncio.Lock(), asyncio.Lock()
        self.loads = Loads(clock)
        self._collected_at = self._evicted_for_run_at = -float("inf")
        self._making_room = False
        self._monitor: asyncio.Task[None] | None = None
        # The device's memory when it was last measured; None before.
        self.measured: DeviceMemory | None = None

    async def start(self) -> None:
        """Measure, and evict idle models and under pressure from now on."""
        self.memory.start()
        await self._measure()
        self._monitor = asyncio.create_task(self._watch())

    def stop(self) -> None:
        """Stop evicting in the background."""
        if self._monitor is not None:
            self._monitor.cancel()

    def close(self) -> None:
        """End the thread that measures, once no load is under way."""
        self.memory.stop()

    async def place(
        self,
        who: str,
        need: Callable[[], Need],
        load: Callable[[], Awaitable[Result]],
        expected_s: float,
        *,
        model: str | None = None,
    ) -> Placed[Result]:
        """Load something onto the device once there is room; evict what the memory manager names for it.

        Args:
            who: Name of the load, for logs and errors.
            need: Estimates its memory. Called when its turn comes, because loads before it improve the estimate.
            load: Loads it. Called once more if memory ran out and something could be evicted.
            expected_s: Expected seconds of `load`.
            model: For a LoRA adapter, the id of its model, which therefore stays.

        Raises:
            ModelLoadError: `OOM`: no room could be made.
            OutOfDeviceMemory: The device had no room after all, even after another model was evicted.
            DeviceLost: The device is lost until a restart.
        """
        with self.loads.queued(who, expected_s) as mine:
            if model is not None and (wanted := need()).sure and (await self._ask_for_room(wanted))[1] == Room():
                return await self._load(mine, model, wanted, load)
            async with self._load_lock:
                wanted, turn = need(), self._clock()
                await self._make_room(wanted, keep=model)
                self.loads.found_room(mine, self._clock() - turn)
                return await self._load(mine, model or who, wanted, load)

    async def free_for_run(self, model: str) -> bool:
        """Free caches, and evict one model, because a batch of `model` ran out of memory.

        Batches that fail at the same time share one eviction, and no other follows within `Timeouts.spare_s`.

        Returns:
            Whether something was evicted.
        """
        asked = self._clock()
        async with self._run_lock:
            if self._evicted_for_run_at > asked:
                return True
            spare = self._clock() < self._evicted_for_run_at + self._timeouts.spare_s
            if not await self._free(model, spare=spare):
                return False
            self._evicted_for_run_at = self._clock()
            return True

    async def relieve(self) -> None:
        """Evict idle models, and those that the manager names under pressure. A load under way makes room itself."""
        memory = await self._measure()
        if self._making_room:
            return
        held = [each.held for each in self._residents().values()]
        for chosen in self._manager.relieve(memory, held, self._clock()):
            await self._evict(chosen, "background", 0.0)

    def problem(self) -> str | None:
        """Name the hanging load, if there is one."""
        for load in self.loads.status():
            if (took := load.at_work_s) is not None and took > self._timeouts.load_s:
                return f"the load of {load.what} has been at work for {took:.0f} s, and nothing else can be loaded"
        return None

    async def _make_room(self, need: Need, keep: str | None) -> None:
        until = self._clock() + self._timeouts.room_s
        passed_over, freed = {keep}, False
        self._making_room = True
        try:
            while True:
                memory, room = await self._ask_for_room(need, passed_over)
                if room == Room():
                    return
                if not freed and not room.fits:
                    # Freed memory that the allocators of C library or device retain counts as used until then.
                    freed = True
                    await self.memory.collect()
                    continue
                left_s = until - self._clock()
                if left_s > 0 and await self._registry.something_leaves(left_s, unused=room.fits):
                    continue
                if not room.fits and not need.sure:
                    return  # a guess: only the load tells whether it fits
                if not room.fits or left_s <= 0:
                    raise ModelLoadError("OOM", _no_room(need.bytes, memory))
                if room.evict is None:
                    await asyncio.sleep(max(self._timeouts.ask_again_s, room.wait_s or 0.0))
                elif not await self._evict(room.evict, "load", self._timeouts.drain_s):
                    passed_over.add(room.evict)
        finally:
            self._making_room = False

    async def _load(self, mine: Load, model: str, need: Need, load: Callable[[], Awaitable[Result]]) -> Placed[Result]:
        with self.loads.at_work(mine, need.bytes):
            try:
                before = await self._measure()
                result = await self._load_twice(mine.who, model, load)
                grown = growth(before, await self._measure())
            except DeviceLost as error:
                self._device_lost(error)
                raise
        return Placed(result, grown if mine.alone else None, need)

    async def _load_twice(self, who: str, model: str, load: Callable[[], Awaitable[Result]]) -> Result:
        # Load; if memory runs out, evict one resident and load once more.
        for first in (True, False):
            try:
                return await load()
            except OUT_OF_MEMORY:
                # The error is dropped here: its traceback would keep alive the memory that must be freed.
                log.warning("%s does not fit into the memory that is free", who, exc_info=True)
            if not (first and await self._free(model)):
                break
        raise OutOfDeviceMemory

    async def _free(self, model: str, *, spare: bool = False) -> bool:
        # Free caches and, unless `spare`, evict one model or adapter because an allocation for `model` failed.
        if self._clock() - self._collected_at >= self._timeouts.collect_again_s:
            self._collected_at = self._clock()
            await self.memory.collect()
        else:
            await self.memory.free_caches()
        if spare:
            return False
        memory, residents = await self._measure(), self._residents()
        models = [each.held for name, each in residents.items() if name != model and self._registry.known(name)]
        loras = [each.held for name, each in residents.items() if self._registry.known(name) is None]
        chosen = self._manager.out_of_memory(memory, models, self._clock())
        chosen = chosen or self._manager.out_of_memory(memory, loras, self._clock())
        return chosen is not None and await self._evict(chosen, "out_of_memory", 0.0)

    async def _evict(self, chosen: str, reason: Reason, wait_s: float) -> bool:
        # Evict a resident; False if it is in use for `wait_s`, or was unloaded in the meantime.
        if (resident := self._residents().get(chosen)) is None:
            return False
        held = resident.held
        began = self._clock()
        unused_s = began - held.last_used
        if not await resident.evict(wait_s):
            return False
        if self._registry.known(held.id) is None:  # a LoRA adapter; the unload of a model frees caches itself
            await self.memory.free_caches()
            return True
        self._metrics.evictions.labels(held.id, reason).inc()
        log.info("%s was evicted (%s), unused for %.1f s", held.id, reason, unused_s)
        trace_apart("evict", began, self._clock(), model=held.id, reason=reason)
        return True

    async def _ask_for_room(self, need: Need, keep: Container[str | None] = ()) -> tuple[DeviceMemory, Room]:
        # Ask the memory manager for room during the loads at work, without the residents of `keep`.
        memory, wanted = await self._measure(), need.bytes + self.loads.reserved
        held = [each.held for name, each in self._residents().items() if name not in keep]
        return memory, self._manager.make_room(wanted, memory, held, self._clock())

    async def _measure(self) -> DeviceMemory:
        memory = await self.memory.measure()
        if memory != UNKNOWN:
            if memory.own is not None:
                # Models may be held by processes that their adapters started: no other process's memory, either.
                own = max(memory.own, sum(each.held.memory_bytes for each in self._residents().values()))
                memory = DeviceMemory(max(memory.used, own), memory.total, own)
            self._metrics.measured(memory)
            self.measured = memory
        return memory

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._timeouts.monitor_s)
            try:
                await self.relieve()
            except Exception:
                log.exception("looking after the device's memory failed; it goes on")


def _no_room(wanted: int, memory: DeviceMemory) -> str:
    return (
        f"it takes about {wanted / 2**20:.0f} MiB, and of {memory.total / 2**20:.0f} MiB "
        f"{max(0, memory.total - memory.used) / 2**20:.0f} are free with no other model left to evict."
    )
