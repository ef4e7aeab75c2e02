"""Keeps which weights are on this machine, and looks again without holding up requests. Event loop only."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from sie_core.catalog import Sighting
from sie_core.concurrency.threads import on_thread
from sie_core.engine.timeouts import Timeouts

log = logging.getLogger(__name__)


class Sightings:
    """The result of the last look at the weights on this machine.

    Args:
        look: Returns what is here of every model; called on a thread of its own.
        tell: Called after each look with the ids of the models whose weights are here.
        timeouts: Bounds its waits.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        look: Callable[[], Mapping[str, Sighting]],
        tell: Callable[[frozenset[str]], None],
        timeouts: Timeouts,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look = look
        self._tell = tell
        self._timeouts = timeouts
        self._clock = clock
        self._seen: Mapping[str, Sighting] = {}
        self._looked_at: float | None = None
        self._wanted = False
        self._looking: asyncio.Task[None] | None = None

    def of(self, model: str) -> Sighting | None:
        """Return what was last seen of a model; None where its weights are elsewhere."""
        return self._seen.get(model)

    def refresh(self) -> None:
        """Start another look where the last one is no longer fresh. Returns at once."""
        if self._looked_at is not None and self._clock() - self._looked_at > self._timeouts.sightings_fresh_s:
            self.again()

    def again(self) -> None:
        """Start a look; where one is under way, another follows it."""
        self._wanted = True
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._until_fresh())

    async def settled(self) -> None:
        """Wait until no look is under way, for a bounded time."""
        if self._looking is not None:
            await asyncio.wait([self._looking], timeout=self._timeouts.first_look_s)

    def close(self) -> None:
        """Cancel the look under way."""
        if self._looking is not None:
            self._looking.cancel()

    async def _until_fresh(self) -> None:
        while self._wanted:
            self._wanted = False
            try:
                self._seen = await on_thread("sie-sightings", self._look)
            except Exception:
                log.exception("the weights on this machine could not be looked at; what was seen before is told")
            self._looked_at = self._clock()
            self._tell(frozenset(self._seen))
