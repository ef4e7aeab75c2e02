"""Puts fetched models onto the device, one at a time: makes room, loads, measures. Event loop only.

It must not know states, requests or retries of failed loads.
"""

from __future__ import annotations

import asyncio
import logging
import time

from sie_core.contracts import OutOfDeviceMemory
from sie_core.engine.costs import Costs
from sie_core.engine.heap import trim_heap
from sie_core.engine.keeper import MemoryKeeper
from sie_core.engine.loaded import LoadedModel
from sie_core.engine.loading import Fetched, Loader, StageReport
from sie_core.engine.request_errors import OUT_OF_MEMORY
from sie_core.engine.threads import on_thread

log = logging.getLogger(__name__)

LOAD_LIMIT_S = 600.0
"""How long a load may work on the device before it counts as hung: no other model can be loaded meanwhile."""

clock = time.monotonic


class Placing:
    """The one place through which models reach the device."""

    def __init__(self, loader: Loader, keeper: MemoryKeeper, costs: Costs) -> None:
        self._loader = loader
        self._keeper = keeper
        self._costs = costs
        self._turn = asyncio.Lock()
        self._at_work: tuple[str, float] | None = None

    async def place(self, fetched: Fetched, report: StageReport) -> tuple[LoadedModel, int]:
        """Load a model when its turn comes and there is room; return it with the bytes it takes.

        Raises:
            ModelLoadError: With the failure's class; `OOM` where no room could be made.
            OutOfDeviceMemory: The device had no room after all, even after another model was unloaded.
        """
        asked, model = clock(), fetched.resolved.id
        async with self._turn:
            wanted, sure = self._costs.estimate(model, fetched.card, fetched.precision)
            await self._keeper.make_room(wanted, sure=sure)
            report("room", clock() - asked)
            self._at_work = (model, clock())
            try:
                return await self._load(fetched, report, wanted if sure else 0)
            finally:
                self._at_work = None

    def problem(self) -> str | None:
        """Say which load hangs, if one does."""
        if self._at_work is not None and (took := clock() - self._at_work[1]) > LOAD_LIMIT_S:
            return f"the load of {self._at_work[0]} has been at work for {took:.0f} s, and no other model can be loaded"
        return None

    async def _load(self, fetched: Fetched, report: StageReport, wanted: int) -> tuple[LoadedModel, int]:
        model = fetched.resolved.id
        before = await self._keeper.measure()
        loaded = await self._attempt(fetched, report)
        if loaded is None and await self._keeper.free_up(model):
            before = await self._keeper.measure()
            loaded = await self._attempt(fetched, report)
        if loaded is None:
            raise OutOfDeviceMemory
        after = await self._keeper.measure()
        family, weights = loaded.family.id, loaded.facts.memory_bytes
        return loaded, self._costs.record(model, family, before, after, weights, wanted)

    async def _attempt(self, fetched: Fetched, report: StageReport) -> LoadedModel | None:
        """Load; None where the device has no room. The error ends here: its frames keep alive what must be freed."""
        try:
            return await on_thread(f"sie-load-{fetched.resolved.id}", lambda: self._load_now(fetched, report))
        except OUT_OF_MEMORY:
            log.warning("%s does not fit into the memory that is free", fetched.resolved.id, exc_info=True)
            return None

    def _load_now(self, fetched: Fetched, report: StageReport) -> LoadedModel:
        try:
            return self._loader.load(fetched, report)
        finally:
            trim_heap()
