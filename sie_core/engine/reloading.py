"""Follows the models folder while the server runs: a changed folder becomes a new snapshot of the catalog.

It must not know what a snapshot means for models that are loaded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sie_core.catalog import Catalog
from sie_core.catalog.watching import Stamp, stamp_of
from sie_core.engine.threads import on_thread
from sie_core.settings import SettingsError

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0


@dataclass(slots=True)
class CatalogWatch:
    """Looks at a folder every second and rebuilds the catalog once a change has settled.

    A change counts when two looks in a row agree, so that half-written files and half-copied folders wait.

    Args:
        folder: The models folder.
        rebuild: Builds the snapshot that follows the one given; called on a thread of its own.
        current: Returns the snapshot in force.
        replace: Puts a new one in force.
    """

    folder: Path
    rebuild: Callable[[Catalog], Catalog]
    current: Callable[[], Catalog]
    replace: Callable[[Catalog], None]
    _applied: Stamp = frozenset()
    _last: Stamp = frozenset()

    async def run(self) -> None:
        """Watch until cancelled."""
        self._applied = self._last = await on_thread("sie-models", lambda: stamp_of(self.folder))
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self.look()

    async def look(self) -> None:
        """Look once, and act where a change has settled."""
        stamp = await on_thread("sie-models", lambda: stamp_of(self.folder))
        settled, self._last = stamp == self._last, stamp
        if stamp == self._applied or not settled:
            return
        self._applied = stamp
        before = self.current()
        try:
            catalog = await on_thread("sie-models", lambda: self.rebuild(before))
        except SettingsError as error:
            log.error("the models folder changed and is not followed, what was served stays: %s", error)
        except Exception:
            log.exception("the models folder changed and could not be read, what was served stays")
        else:
            self.replace(catalog)
