"""Follows the models folder while the server runs: a changed folder gives a new snapshot of the catalog."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeVar

from sie_core.catalog import Catalog
from sie_core.catalog.sources.folder import FolderUnreadable, ModelsFolder
from sie_core.concurrency.threads import on_thread
from sie_core.settings import SettingsError

log = logging.getLogger(__name__)

Result = TypeVar("Result")

SETTLE_S = 1.0
"""Seconds between the two looks that must agree on a change."""
DOUBLINGS = 3
"""Number of times the pause doubles while the folder cannot be read."""
UNFOLLOWED = "the models folder changed and cannot be followed; the log says why"
JITTER = 0.1
"""Share by which pauses vary, so that the machines of a cluster do not list their store all at once."""


@dataclass(slots=True)
class CatalogWatch:
    """Looks at a folder periodically and rebuilds the catalog once a change has settled.

    A change counts when two looks in a row agree, so that half-written files and half-copied folders wait. While the
    folder cannot be read, the last catalog stays in force.

    Args:
        folder: The models folder.
        rebuild: Builds the snapshot after the given one; called on a separate thread.
        current: Returns the snapshot in force.
        replace: Puts a new one in force.
        tell: Called with a reason fit for clients when the folder cannot be followed, and with None once it can again.
        hung_s: Seconds after which a folder that does not answer is reported as unreadable.
    """

    folder: ModelsFolder
    rebuild: Callable[[Catalog], Catalog]
    current: Callable[[], Catalog]
    replace: Callable[[Catalog], None]
    tell: Callable[[str | None], None]
    hung_s: float = 60.0
    _last: Hashable = field(default=None, init=False)
    _refused: Hashable = field(default=None, init=False)
    _settling: bool = field(default=False, init=False)
    _failures: int = field(default=0, init=False)
    _problem: str | None = field(default=None, init=False)

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await asyncio.sleep(self.pause_s() * random.uniform(1 - JITTER, 1 + JITTER))
            await self.look()

    def pause_s(self) -> float:
        """Return the seconds until the next look, before jitter."""
        if self._settling:
            return min(SETTLE_S, self.folder.look_every_s)
        return self.folder.look_every_s * (1 << min(self._failures, DOUBLINGS))

    async def look(self) -> None:
        """Look once, and rebuild if a change has settled."""
        try:
            stamp = await self._on_thread(self.folder.stamp)
            if self._has_settled(stamp):
                await self._follow(stamp)
        except Exception as error:
            self._failures += 1
            self._settling = False
            self._say(error)
        else:
            self._failures = 0

    def _has_settled(self, stamp: Hashable) -> bool:
        """Whether a change has settled; if the folder is as served, the last problem is cleared."""
        served = self.current().stamp
        agreed, self._last = stamp == self._last, stamp
        if stamp == served:
            self._say(None)
        changed = stamp not in (served, self._refused)
        self._settling = changed and not agreed
        return changed and agreed

    async def _follow(self, stamp: Hashable) -> None:
        before = self.current()
        try:
            catalog = await self._on_thread(lambda: self.rebuild(before))
        except FolderUnreadable:
            raise
        except SettingsError as error:  # faults of the folder's content; anything else may be transient
            self._refused = stamp
            self._say(error)
        else:
            self.replace(catalog)
            self._say(None)

    async def _on_thread(self, call: Callable[[], Result]) -> Result:
        """Return what `call` returns, however long it takes: a thread cannot be ended, and a second would hang too."""
        hung = FolderUnreadable(
            f"the models folder has not answered for {self.hung_s:g} s; what is at it is waited for"
        )
        telling = asyncio.get_running_loop().call_later(self.hung_s, self._say, hung)
        try:
            return await on_thread("sie-models", call)
        finally:
            telling.cancel()

    def _say(self, error: Exception | None) -> None:
        """Log a new problem, or the end of one, once; and pass it on."""
        if error is None:
            self._refused = None
        said = None if error is None else str(error) if isinstance(error, FolderUnreadable) else UNFOLLOWED
        if error is not None and said != self._problem:
            unforeseen = None if isinstance(error, SettingsError) else error
            log.error("the models folder is not followed, what was served stays: %s", error, exc_info=unforeseen)
        elif error is None and self._problem is not None:
            log.info("the models folder is followed again")
        self._problem = said
        self.tell(said)
