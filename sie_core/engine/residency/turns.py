"""Who may put something onto the device: one at a time, once there is room. Event loop only.

Taking turns keeps what each takes measurable. It must not know what is loaded, nor how.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from sie_core.contracts import DeviceLost, OutOfDeviceMemory
from sie_core.engine.requests.errors import OUT_OF_MEMORY
from sie_core.engine.residency.keeper import MemoryKeeper

log = logging.getLogger(__name__)

LOAD_LIMIT_S = 600.0
"""How long a load may work on the device before it counts as hung: nothing else can be loaded meanwhile."""

Estimate = tuple[int, bool]
"""Bytes that a load will take, and whether that is known; where it is guessed, the load shows whether it fits."""

clock = time.monotonic

Result = TypeVar("Result")


class Turns:
    """The one place through which models and LoRA adapters reach the device.

    Args:
        keeper: Makes room.
        lose: Told where a load finds the device lost.
    """

    def __init__(self, keeper: MemoryKeeper, lose: Callable[[DeviceLost], None]) -> None:
        self._keeper = keeper
        self._lose = lose
        self._lock = asyncio.Lock()
        self._at_work: tuple[str, float] | None = None

    @asynccontextmanager
    async def take(self, who: str, estimate: Callable[[], Estimate], beside: str | None = None) -> AsyncIterator[int]:
        """Hold the device from when it is this load's turn and there is room; gives the bytes known of, 0 for none.

        Args:
            who: What is loaded, for people.
            estimate: Says what it will take; asked when the turn comes, as others' loads teach what models take.
            beside: The model it is of no use without, which therefore stays.

        Raises:
            ModelLoadError: `OOM`: no room could be made.
        """
        async with self._lock:
            wanted, sure = estimate()
            await self._keeper.make_room(wanted, sure=sure, beside=beside)
            self._at_work = (who, clock())
            try:
                yield wanted if sure else 0
            except DeviceLost as error:
                self._lose(error)
                raise
            finally:
                self._at_work = None

    async def fit(self, model: str, who: str, load: Callable[[], Awaitable[Result]]) -> Result:
        """Load while holding the device; where it has no room after all, have more made and try once more.

        Args:
            model: The model that lacks memory where the load does.
            who: What is loaded, for people.
            load: Loads it.

        Raises:
            OutOfDeviceMemory: No more room could be made, or it was not enough.
        """
        for first in (True, False):
            try:
                return await load()
            except OUT_OF_MEMORY:
                # The error ends here: its frames keep alive what must be freed.
                log.warning("%s does not fit into the memory that is free", who, exc_info=True)
            if not (first and await self._keeper.free_up(model)):
                break
        raise OutOfDeviceMemory

    def problem(self) -> str | None:
        """Say which load hangs, if one does."""
        if self._at_work is not None and (took := clock() - self._at_work[1]) > LOAD_LIMIT_S:
            return f"the load of {self._at_work[0]} has been at work for {took:.0f} s, and nothing else can be loaded"
        return None
