"""Starts the broker again where it runs and stores no work, as after a full disk, which ends with a new start alone."""

from __future__ import annotations

import logging
import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import orjson

from sie_core.cluster.local.asking import ask
from sie_core.cluster.queue.broker import STORES_NOTHING

STUCK_S: Final = 5.0
"""How long the gateway must say that nothing is stored: a disk may be slow for a moment."""
AGAIN_S: Final = 60.0
"""Between two starts for this reason."""
ROOM_BYTES: Final = 64 << 20
"""With less room on the disk a start would not help."""

log = logging.getLogger("sie_core.cluster")


class BrokerWatchdog:
    """Looks at what the gateway says of the broker.

    Args:
        folder: Where the broker's files are.
        url: The gateway's.
        token: A client's; None where everybody may call.
        clock: Monotonic seconds.
    """

    def __init__(
        self, folder: Path, url: str, token: str | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder, self._url, self._token, self._clock = folder, url, token, clock
        self._since: float | None = None
        self._again_at = -math.inf
        self._told = False

    def is_due(self) -> bool:
        """Look once, which may take a second; whether the broker is to be started again."""
        now = self._clock()
        if not self._stores_nothing():
            self._since, self._told = None, False
            return False
        self._since = now if self._since is None else self._since
        if now - self._since < STUCK_S or now < self._again_at:
            return False
        room = shutil.disk_usage(self._folder).free
        if room < ROOM_BYTES:
            if not self._told:
                log.error(
                    "the broker stores no work, and the disk of %s has %d MB left: make room; with %d MB the broker is "
                    "started again", self._folder, room >> 20, ROOM_BYTES >> 20,
                )  # fmt: skip
            self._told = True
            return False
        log.error("the broker stores no work although its disk has room; it is started again")
        self._since, self._again_at = None, now + AGAIN_S
        return True

    def _stores_nothing(self) -> bool:
        told = ask(f"{self._url}/health", timeout_s=1, token=self._token)
        try:
            problems = orjson.loads(told or b"{}").get("problems", ())
        except orjson.JSONDecodeError:
            return False
        return any(str(problem).startswith(STORES_NOTHING) for problem in problems)
