"""Loads `SIE_PRELOAD_MODELS` and says whether they are there. It must not know who asks about readiness."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from sie_core.catalog import Catalog
from sie_core.contracts import InferenceError
from sie_core.engine.lifecycle import Lifecycle

log = logging.getLogger(__name__)

clock = time.monotonic


class Preload:
    """The models to be loaded before readiness. A transient failure is tried again after its cooldown."""

    def __init__(self, names: Sequence[str], catalog: Catalog, lifecycle: Lifecycle) -> None:
        self._catalog = catalog
        self._lifecycle = lifecycle
        self._problems: dict[str, str] = {name: f"{name} is being loaded" for name in names}
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def problem(self) -> str | None:
        """What keeps the preload from being complete; None where nothing does."""
        return f"preload: {'; '.join(self._problems.values())}" if self._problems else None

    async def run(self) -> None:
        """Try to load every model once; go on in the background with those that failed for now."""
        first = [asyncio.Event() for _ in self._problems]
        for name, tried in zip(tuple(self._problems), first, strict=True):
            self._tasks.append(asyncio.create_task(self._load(name, tried)))
        await asyncio.gather(*(tried.wait() for tried in first))

    def cancel(self) -> None:
        """Stop trying."""
        for task in self._tasks:
            task.cancel()

    async def _load(self, name: str, tried: asyncio.Event) -> None:
        try:
            while (wait_s := await self._attempt(name)) is not None:
                tried.set()
                await asyncio.sleep(wait_s)
        finally:
            tried.set()

    async def _attempt(self, name: str) -> float | None:
        """Load a model; return the seconds until it may be tried again, or None where it need or must not be."""
        try:
            resolved = self._catalog.resolve(name)
            await self._lifecycle.load(resolved)
        except InferenceError as error:
            self._problems[name] = f"{name} failed: {error.message}"
            log.error("preload: %s", self._problems[name])
            if error.code != "MODEL_LOAD_FAILED":
                return None
            failure = self._lifecycle.slot(resolved).failure
            return None if failure is None or failure.retry_at is None else max(0.0, failure.retry_at - clock())
        del self._problems[name]
        return None
