"""Loads that a sidecar wants before work for a model comes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from sie_cluster.messages.frames import FrameError
from sie_cluster.messages.wishes import decode_wish
from sie_cluster.worker.answering import WorkerBackend
from sie_core.contracts import InferenceError

log = logging.getLogger(__name__)


class Loads:
    """Those under way, each once.

    Args:
        backend: Loads.
        tell: Tells sidecars that a model is on its way, and how that ended.
    """

    def __init__(self, backend: WorkerBackend, tell: Callable[[], None]) -> None:
        self._backend, self._tell = backend, tell
        self._under_way: dict[bytes, asyncio.Task[None]] = {}

    def take(self, wish: bytes) -> None:
        """Load what is wanted, unless that is under way."""
        if wish not in self._under_way:
            task = self._under_way[wish] = asyncio.get_running_loop().create_task(self._load(wish))
            task.add_done_callback(lambda _: self._under_way.pop(wish))

    async def _load(self, payload: bytes) -> None:
        try:
            wish = decode_wish(payload)
            loading = asyncio.create_task(self._backend.load(wish.model, wish.lora))
            await asyncio.sleep(0)
            self._tell()
            await loading
        except (FrameError, InferenceError) as error:
            log.warning("what the sidecar wanted loaded is not: %s", error)
        self._tell()
