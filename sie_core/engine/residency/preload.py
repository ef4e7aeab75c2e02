"""Loads `SIE_PRELOAD_MODELS` and tells readiness when they are loaded."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Container, Sequence

from sie_core.catalog import Catalog
from sie_core.catalog.configs.snapshot import listed_id
from sie_core.contracts import InferenceError
from sie_core.engine.residency.lifecycle import Lifecycle

log = logging.getLogger(__name__)


class Preload:
    """The models that readiness waits for. A failed load is tried again once it cooled down or its config changed.

    Readiness does not wait for a model that a config service may add later; it is loaded when it comes.
    """

    def __init__(
        self,
        names: Sequence[str],
        catalog: Callable[[], Catalog],
        lifecycle: Lifecycle,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._catalog, self._lifecycle, self._clock = catalog, lifecycle, clock
        self._problems: dict[str, str] = {name: f"{name} is being loaded" for name in names}
        self._later: set[str] = set()
        self._changed: dict[str, asyncio.Event] = {name: asyncio.Event() for name in names}
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def problem(self) -> str | None:
        """Which models are not loaded yet, and why; None once all are."""
        waited = [problem for name, problem in self._problems.items() if not self._may_come(name)]
        return f"preload: {'; '.join(waited)}" if waited else None

    def _may_come(self, name: str) -> bool:
        # Whether a model was not there when it was to be loaded, or is not now, and a config service may add it.
        catalog = self._catalog()
        return name in self._later or (catalog.config_epoch is not None and listed_id(name) not in catalog.entries)

    async def run(self) -> None:
        """Try to load every model once; keep trying in the background where a load failed for now."""
        first = [asyncio.Event() for _ in self._problems]
        for name, tried in zip(tuple(self._problems), first, strict=True):
            self._tasks.append(asyncio.create_task(self._load(name, tried)))
        await asyncio.gather(*(tried.wait() for tried in first))

    def follow(self, changed: Container[str]) -> None:
        """Try again at once those models whose config changed."""
        for name, event in self._changed.items():
            if listed_id(name) in changed:
                event.set()

    def cancel(self) -> None:
        """Stop trying."""
        for task in self._tasks:
            task.cancel()

    async def _load(self, name: str, tried: asyncio.Event) -> None:
        changed = self._changed[name]
        try:
            while True:
                changed.clear()
                wait_s = await self._attempt(name)
                if name not in self._problems:
                    return
                tried.set()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), wait_s)
        finally:
            tried.set()

    async def _attempt(self, name: str) -> float | None:
        # Load a model; return the seconds until the next try, None where only a changed config can help.
        try:
            resolved = self._catalog().resolve(name)
            await self._lifecycle.load(resolved)
        except InferenceError as error:
            if error.code == "MODEL_NOT_FOUND" and self._may_come(name):
                self._later.add(name)
                return None
            self._problems[name] = f"{name} failed: {error.message}"
            log.error("preload: %s", self._problems[name])
            if error.code != "MODEL_LOAD_FAILED":
                return None
            failure = self._lifecycle.failure(resolved)
            return None if failure is None else max(0.0, failure.retry_at - self._clock())
        del self._problems[name]
        return None
