"""Follows a folder of bundles while a program runs: a state that two looks in a row find is read and put in force."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path

from sie_bundle.bundles.names import FILE
from sie_bundle.bundles.reading import Bundle, BundleError, read_bundles
from sie_core.concurrency.threads import on_thread

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Pause between two looks, which must agree on a change: half-copied folders wait."""


def stamp_of(folder: Path) -> Hashable:
    """Return a value that differs between any two states of a folder of bundles; None if it cannot be listed."""
    try:
        return frozenset(seen for each in folder.iterdir() if (seen := _seen(each / FILE)) is not None)
    except OSError:
        return None


@dataclass(slots=True)
class BundlesWatch:
    """Looks at one folder.

    While it cannot be read, or anything in it is wrong, the bundles in force stay.

    Args:
        folder: A folder for each bundle, with its file.
        stamp: Stamp of the folder before the bundles in force were read.
        replace: Puts the bundles of a changed folder in force; called on a separate thread.
        counted: Called with the outcome of each change: `applied` or `refused`.
    """

    folder: Path
    stamp: Hashable
    replace: Callable[[tuple[Bundle, ...]], None]
    counted: Callable[[str], None] = lambda _: None
    _last: Hashable = field(default=None, init=False)
    _problem: str | None = field(default=None, init=False)

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Look once, and follow a settled change; report a refused one once, and retry it."""
        stamp = await on_thread("sie-bundles", lambda: stamp_of(self.folder))
        settled, self._last = stamp == self._last, stamp
        if stamp == self.stamp:
            self._problem = None
        elif settled:
            await self._follow(stamp)

    async def _follow(self, stamp: Hashable) -> None:
        try:
            bundles = await on_thread("sie-bundles", self._read)
        except Exception as error:
            if str(error) != self._problem:
                self.counted("refused")
                told = "the bundles have changed and are not followed, those in force stay: %s"
                log.error(told, error, exc_info=None if isinstance(error, BundleError) else error)
            self._problem = str(error)
            return
        self.stamp, self._problem = stamp, None
        self.counted("applied")
        log.info("bundles in force: %s", ", ".join(bundle.name for bundle in bundles))

    def _read(self) -> tuple[Bundle, ...]:
        bundles = read_bundles(self.folder)
        self.replace(bundles)
        return bundles


def _seen(file: Path) -> tuple[str, int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return str(file), status.st_ino, status.st_size, status.st_mtime_ns
