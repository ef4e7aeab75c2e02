"""Puts fetched models onto the device, in turn: has room made, loads, measures. Event loop only.

It must not know states, requests or retries of failed loads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from sie_core.concurrency.threads import on_thread
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.residency.estimates import Costs, growth
from sie_core.engine.residency.heap import trim_heap
from sie_core.engine.residency.keeper import MemoryKeeper
from sie_core.engine.residency.loader import Fetched, Loader, StageReport
from sie_core.engine.residency.turns import Turns

clock = time.monotonic


class Placing:
    """Loads models when it is their turn.

    Args:
        loader: Loads them.
        turns: Gives the device, with room made.
        keeper: Measures it.
        costs: Told what each took.
        activity: Returns what changes whenever anything but a load takes or gives back memory of the device.
    """

    def __init__(
        self, loader: Loader, turns: Turns, keeper: MemoryKeeper, costs: Costs, activity: Callable[[], object]
    ) -> None:
        self._loader = loader
        self._turns = turns
        self._keeper = keeper
        self._costs = costs
        self._activity = activity

    async def place(self, fetched: Fetched, report: StageReport) -> tuple[LoadedModel, int]:
        """Load a model when its turn comes and there is room; return it with the bytes it takes.

        Raises:
            ModelLoadError: With the failure's class; `OOM` where no room could be made.
            OutOfDeviceMemory: The device had no room after all, even after another model was unloaded.
        """
        asked, model = clock(), fetched.resolved.id
        estimate = partial(self._costs.estimate, model, fetched.card, fetched.precision)
        async with self._turns.take(model, estimate) as known:
            report("room", clock() - asked)
            return await self._load(fetched, report, known)

    def problem(self) -> str | None:
        """Say which load hangs, if one does."""
        return self._turns.problem()

    async def _load(self, fetched: Fetched, report: StageReport, known: int) -> tuple[LoadedModel, int]:
        model = fetched.resolved.id
        loaded, grown = await self._turns.fit(model, model, lambda: self._measured(fetched, report))
        return loaded, self._costs.record(model, loaded.family.id, grown, loaded.facts.memory_bytes, known)

    async def _measured(self, fetched: Fetched, report: StageReport) -> tuple[LoadedModel, int | None]:
        """Load; return what the device then holds more, None where something else moved its memory too."""
        seen, before = self._activity(), await self._keeper.measure()
        loaded = await on_thread(f"sie-load-{fetched.resolved.id}", lambda: self._load_now(fetched, report))
        after = await self._keeper.measure()
        return loaded, growth(before, after) if self._activity() == seen else None

    def _load_now(self, fetched: Fetched, report: StageReport) -> LoadedModel:
        try:
            return self._loader.load(fetched, report)
        finally:
            trim_heap()
