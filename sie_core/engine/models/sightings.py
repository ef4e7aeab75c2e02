"""Keeps what was last seen of weights on this machine, and looks again beside requests. Event loop only.

It must not know what a sighting is made of.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from sie_core.catalog import Sighting
from sie_core.concurrency.threads import on_thread

log = logging.getLogger(__name__)

FRESH_S = 5.0
"""How long a look counts. Weights also come and go through other processes, which tell nobody."""
LONGEST_WAIT_S = 30.0
"""How long a start is not ready for want of its first look, which a disk that hangs holds up."""

clock = time.monotonic


class Sightings:
    """What was last seen.

    Args:
        look: Looks at every model; called on a thread of its own.
        tell: Takes the ids of those whose weights are here, after each look.
    """

    def __init__(self, look: Callable[[], Mapping[str, Sighting]], tell: Callable[[frozenset[str]], None]) -> None:
        self._look = look
        self._tell = tell
        self._seen: Mapping[str, Sighting] = {}
        self._looked_at: float | None = None
        self._wanted = False
        self._looking: asyncio.Task[None] | None = None

    def of(self, model: str) -> Sighting | None:
        """Return what was last seen of a model; None where its weights are elsewhere."""
        return self._seen.get(model)

    def refresh(self) -> None:
        """Look again where the last look is not fresh any more; this call returns at once."""
        if self._looked_at is not None and clock() - self._looked_at > FRESH_S:
            self.again()

    def again(self) -> None:
        """Look again; once more where a look is under way."""
        self._wanted = True
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._until_fresh())

    async def settled(self) -> None:
        """Return when no look is under way, or when one takes too long to be waited for."""
        if self._looking is not None:
            await asyncio.wait([self._looking], timeout=LONGEST_WAIT_S)

    def close(self) -> None:
        """Wait for no look any more."""
        if self._looking is not None:
            self._looking.cancel()

    async def _until_fresh(self) -> None:
        while self._wanted:
            self._wanted = False
            try:
                self._seen = await on_thread("sie-sightings", self._look)
            except Exception:
                log.exception("the weights on this machine could not be looked at; what was seen before is told")
            self._looked_at = clock()
            self._tell(frozenset(self._seen))
