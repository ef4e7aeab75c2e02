"""Tells gateways of this worker: whether it takes work, what it holds, and what its adapter process says of itself."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from sie_core.cluster.messages.configs import ConfigState
from sie_core.cluster.messages.frames import encode
from sie_core.cluster.subjects import health_subject
from sie_core.contracts import QueueError, QueueTransport
from sie_core.settings import Settings

LOOK_S = 1.0
"""Between two looks whether the adapter process says something else."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerState:
    """What a heartbeat tells."""

    up: bool
    """Whether work is taken."""
    status: bytes
    """That of the adapter process; empty while it is away."""
    held: int
    """Slices that are held."""
    configs: ConfigState
    """The configs that the adapter process serves."""


class Heartbeat:
    """That of one worker.

    Args:
        transport: Open.
        settings: Pool, bundle, and how often gateways are told at least.
        worker: Its name.
        state: Gives what is told.
    """

    def __init__(
        self,
        transport: QueueTransport,
        settings: Settings,
        worker: str,
        state: Callable[[], WorkerState],
    ) -> None:
        self._transport, self._settings, self._worker, self._state = transport, settings, worker, state
        self._changed = asyncio.Event()
        self._is_cut = False

    def soon(self) -> None:
        """Tell gateways at once whether work is taken, where that has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Tell them again and again until cancelled."""
        told: object = None
        interval_s, beat_at = self._settings.health_publish_interval_ms / 1000, 0.0
        while True:
            self._changed.clear()
            state = self._state()
            news = replace(state, held=0)
            if news != told or time.monotonic() >= beat_at:
                beat_at = time.monotonic() + interval_s
                told = news if await self._beat(state) else None
            with suppress(TimeoutError):
                async with asyncio.timeout(min(LOOK_S, interval_s)):
                    await self._changed.wait()

    async def _beat(self, state: WorkerState) -> bool:
        pool, bundle = self._settings.pool, self._settings.bundle
        head = {"worker": self._worker, "pool": pool, "bundle": bundle, "up": state.up, "held": state.held}
        if state.configs.epoch is not None:
            head |= {"config_epoch": state.configs.epoch, "config_hash": state.configs.hash}
        for section in (state.status, b""):
            try:
                await self._transport.send(health_subject(self._worker), encode(head, (section,)))
            except QueueError as error:
                if error.failure != "TOO_LARGE":
                    return False
                if not self._is_cut:
                    log.warning("gateways are not told of this worker's models: %s", error)
                self._is_cut = True
            else:
                return True
        return False
