"""Loads models before the first request, and decides when readiness is green. Event loop only."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Container, Iterable, Sequence

from sie_core.catalog.configs.snapshot import listed_id
from sie_core.catalog.sources.hub_models import REFUSED_S
from sie_core.concurrency.tasks import within
from sie_core.contracts import InferenceError
from sie_core.engine.models.served import Served
from sie_core.engine.residency.lifecycle import Lifecycle

log = logging.getLogger(__name__)

# Until a model is looked up again that could not be.
LOOKUP_PAUSE_S = REFUSED_S + 1.0


class Preload:
    """Loads `SIE_PRELOAD_MODELS`, and keeps those models loaded that are pinned while the engine runs.

    A failed load is tried again once it cooled down or its config changed. Readiness waits for the models of the
    setting, except those that a config service may add later; these are loaded when they are added.
    """

    def __init__(
        self,
        names: Sequence[str],
        served: Served,
        lifecycle: Lifecycle,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._served, self._lifecycle, self._clock = served, lifecycle, clock
        # Models to preload that are not loaded yet, and those of them that readiness does not wait for.
        self._awaited = dict.fromkeys(names)
        self._later: set[str] = set()
        self._pinned: frozenset[str] = frozenset()
        self._failures: dict[str, str] = {}
        # By name: the loading task, and the event that triggers its next try at once. None are started before `run`.
        self._tasks: dict[str, tuple[asyncio.Task[None], asyncio.Event]] = {}
        self._runs = False

    @property
    def problem(self) -> str | None:
        """The models that readiness waits for, with reasons; None once all are loaded."""
        waited = [name for name in self._awaited if not self._may_come(name)]
        told = [self._failures.get(name) or self._progress(name) for name in waited]
        return f"preload: {'; '.join(told)}" if told else None

    def _progress(self, name: str) -> str:
        record = self._lifecycle.registry.known(listed_id(name))
        fetched = "" if record is None or record.download is None else f": {record.download.describe()} fetched"
        return f"{name} is being loaded{fetched}"

    def _may_come(self, name: str) -> bool:
        # Whether a model was not there when it was to be loaded, or is not now, and a config service may add it.
        catalog = self._served.catalog
        return name in self._later or (catalog.config_epoch is not None and listed_id(name) not in catalog.entries)

    async def run(self) -> None:
        """Load them from now on; return when each model of the setting was tried once."""
        self._runs = True
        tried = [self._start(name) for name in self._awaited]
        self.pin(self._pinned)
        await asyncio.gather(*(each.wait() for each in tried))

    def pin(self, names: Iterable[str]) -> None:
        """Keep these, and release those that were pinned before: they stay until their memory is needed."""
        self._pinned = frozenset(names)
        self._lifecycle.registry.pin(frozenset(map(listed_id, self._pinned)))
        for gone in self._tasks.keys() - self._pinned - self._awaited.keys():
            self._tasks.pop(gone)[0].cancel()
            self._failures.pop(gone, None)
        for name in self._pinned - self._tasks.keys() if self._runs else ():
            self._start(name)

    def again(self, models: Container[str]) -> None:
        """Retry at once the models whose config changed, or that were unloaded."""
        for name, (_, wake) in self._tasks.items():
            if listed_id(name) in models:
                wake.set()

    def cancel(self) -> None:
        """Load no more."""
        self._runs = False
        for task, _ in self._tasks.values():
            task.cancel()

    def _start(self, name: str) -> asyncio.Event:
        # Return the event that is set once the model was tried.
        tried, wake = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(self._keep(name, tried, wake))
        task.add_done_callback(lambda _: tried.set())
        self._tasks[name] = task, wake
        return tried

    async def _keep(self, name: str, tried: asyncio.Event, wake: asyncio.Event) -> None:
        while True:
            wake.clear()
            wait_s = await self._attempt(name)
            tried.set()
            if name not in self._awaited and name not in self._pinned:
                del self._tasks[name]
                return
            await within(wake.wait(), wait_s)

    async def _attempt(self, name: str) -> float | None:
        # Load a model; return the seconds until the next try, None to wait for `again`.
        try:
            resolved = await self._served.resolve(name, named=True)
            self._tasks[name][1].clear()  # the model may have been added by this very look-up: no second try for that
            await self._lifecycle.load(resolved)
        except InferenceError as error:
            self._failed(name, error)
            if error.code not in ("MODEL_LOAD_FAILED", "MODEL_LOADING"):
                return None
            record = self._lifecycle.registry.known(listed_id(name))
            failure = None if record is None else record.failure
            return LOOKUP_PAUSE_S if failure is None else max(0.0, failure.retry_at - self._clock())
        self._failures.pop(name, None)
        self._awaited.pop(name, None)
        return None

    def _failed(self, name: str, error: InferenceError) -> None:
        # A failure is reported once.
        later = error.code == "MODEL_NOT_FOUND" and self._may_come(name)
        if later:
            self._later.add(name)
        before, told = self._failures.get(name), f"{name} failed: {error.message}"
        self._failures[name] = told
        if told != before:
            log.log(logging.WARNING if later else logging.ERROR, "preload: %s", told)
