"""Loads models when requests ask for them, and unloads them when told to. Event loop only."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

from sie_core.cache.progress import show_load
from sie_core.catalog.fetching import FetchedModel
from sie_core.concurrency.leases import Lease
from sie_core.concurrency.threads import on_thread
from sie_core.contracts import InferenceError, LoadWait, ResolvedModel
from sie_core.engine.metrics import EngineMetrics
from sie_core.engine.models.load_failure import failed_load
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.models.record import (
    LEAST_RETRY_S,
    LONGEST_IMPORT_S,
    ON_THE_WAY,
    RESTING,
    ModelRecord,
    Registry,
    State,
    Took,
)
from sie_core.engine.requests.errors import unavailable
from sie_core.engine.residency.loader import Loader
from sie_core.engine.residency.residency import Residency
from sie_core.engine.residency.unloader import Queues, Unloader
from sie_core.engine.timeouts import Timeouts
from sie_core.logs import trace_apart
from sie_core.memory.estimates import Estimates

log = logging.getLogger(__name__)

# Bounds the loads whose durations predict that of the next one.
LOADS_REMEMBERED = 16
# How much longer than its longest prediction a load is waited for, as a share.
ERROR_SHARE = 0.25
# Longest predicted first load, in seconds, that a request waits for: predictions from other models' loads are poor.
GUESSED_S = 0.5
# Expected seconds of a load without any prediction. Clients that retry get an estimate from the time elapsed so far; a
# longer guess would make clients of short loads wait for nothing.
UNKNOWN_S = 1.0


@dataclass(slots=True, eq=False)
class Lifecycle:
    """Moves every model of the catalog through its states."""

    registry: Registry
    loader: Loader
    residency: Residency
    unloader: Unloader
    estimates: Estimates
    # Provides the queue of a loaded model.
    queues: Queues
    metrics: EngineMetrics
    timeouts: Timeouts
    clock: Callable[[], float] = time.monotonic
    _closed: bool = False
    # Seconds of the latest loads.
    _took: deque[Took] = field(default_factory=lambda: deque(maxlen=LOADS_REMEMBERED))

    async def acquire(self, resolved: ResolvedModel, wait: LoadWait) -> tuple[LoadedModel, Lease]:
        """Return the loaded model with a lease on it, which the caller releases. Starts the load if needed.

        Args:
            resolved: The model.
            wait: How long to wait for a load or an unload.

        Raises:
            InferenceError: `MODEL_LOADING` with the remaining time, `MODEL_NOT_LOADED` while it is being unloaded,
                `MODEL_LOAD_FAILED` until a failed load may be retried; `MODEL_NOT_FOUND` if it was removed meanwhile;
                `QUEUE_UNAVAILABLE` once closed.
        """
        record = self._current(self.registry.of(resolved))
        if (loaded := record.ready()) is not None:
            if record.awaited:
                record.came_back()
            return loaded, loaded.leases.acquire()
        self._begin(record, waited=False)
        asked = self.clock()
        until = asked + self._wait_s(record, wait)
        with wait.place() as may_wait:
            while may_wait and (left_s := until - self.clock()) > 0:
                await record.at_rest(left_s)
                record = self._current(record)
                if (loaded := record.ready()) is not None:
                    self.metrics.cold_start.labels(loaded.id).observe(self.clock() - asked)
                    return loaded, loaded.leases.acquire()
                self._begin(record, waited=True)
        raise self._not_ready(record)

    def loaded(self, resolved: ResolvedModel) -> LoadedModel | None:
        """Return a model that `acquire` would return at once; None otherwise."""
        record = self.registry.known(resolved.id)
        return None if record is None or self._closed else record.ready()

    async def load(self, resolved: ResolvedModel) -> None:
        """Load a model now, despite earlier failures; return when it is loaded, or raise as `acquire` does."""
        record = self.registry.of(resolved)
        while (record := self._current(record)).ready() is None:
            self._start_load(record)
            await record.at_rest()
            if record.state is State.FAILED and record.failure is not None:
                raise record.failure.error(self.clock())

    async def load_record(self, record: ModelRecord) -> None:
        """Load a record, unless it is retired or loaded. Afterwards it holds the model, or the failure."""
        if not record.retired:
            self._start_load(record)
            await record.at_rest()

    async def retire(self, record: ModelRecord) -> None:
        """Unload a retired record once its last request is answered, also if a load is under way; then remove it."""
        if record.state in (State.FETCHING, State.QUEUED):
            await _cancel(record)  # nothing of it is on the device yet
        while not self._closed and (record.state not in RESTING or record.loaded is not None):  # a close unloads it
            if record.state in RESTING:
                await self.unloader.unload(record)
            else:
                await record.at_rest()
        self.registry.forget(record)

    async def unload(self, resolved: ResolvedModel, wait_s: float | None = None) -> bool:
        """Unload a model as `Unloader.unload` does; return whether it is not loaded now."""
        record = self.registry.of(resolved)
        while record.state not in RESTING:
            await record.at_rest()
        await self.unloader.unload(record, wait_s)
        return record.loaded is None

    async def close(self) -> None:
        """Unload every model at once; the device has stopped."""
        self._closed = self.unloader.closed = True
        records = list(self.registry)
        await asyncio.gather(*(_cancel(record) for record in records))
        await self.unloader.close(records)

    def notes(self) -> list[str]:
        """List the loads whose download makes no progress."""
        downloads = [(record.resolved.id, record.download) for record in self.registry if record.download is not None]
        return [f"{model}: {problem}" for model, download in downloads if (problem := download.problem())]

    def _begin(self, record: ModelRecord, *, waited: bool) -> None:
        # Start a load. A failed load is reported to its waiters, and to all until it has cooled down.
        now, failure = self.clock(), record.failure
        if record.state is State.FAILED and failure is not None and (waited or not failure.may_retry(now)):
            raise failure.error(now)
        self._start_load(record)

    def _current(self, record: ModelRecord) -> ModelRecord:
        # Return a record, or its successor if the catalog changed meanwhile.
        if self._closed:
            raise unavailable("the engine is closed")
        if not record.retired:
            return record
        model = record.resolved.id
        current = self.registry.known(model)
        if current is None:
            raise InferenceError("MODEL_NOT_FOUND", f"The model {model!r} is no longer served here.", param="model")
        return current

    def _start_load(self, record: ModelRecord) -> None:
        # Start a load, unless the model is loaded, or a load or unload is under way.
        if record.state in (State.AVAILABLE, State.FAILED):
            record.move(State.FETCHING)
            record.task = asyncio.create_task(self._load(record))

    async def _load(self, record: ModelRecord) -> None:
        model, started = record.resolved.id, self.clock()
        try:
            loaded, memory_bytes = await self._place(record, await self._fetch(record))
        except asyncio.CancelledError:
            record.move(State.AVAILABLE)
            raise
        except BaseException as error:
            failure = failed_load(model, error, record.failure, self.clock(), self.timeouts)
            self.metrics.loads.labels(model, failure.error_class).inc()
            record.move(State.FAILED, failure=failure)
            trace_apart("load", started, self.clock(), failure.error_class, model=model)
            return
        self.queues.add_model(loaded)
        record.move(State.READY, loaded=loaded, memory_bytes=memory_bytes)
        self._loaded(record)
        stages: dict[str, Any] = {f"sie.load.{stage}_s": seconds for stage, seconds in record.stages_s.items()}
        computed, took = loaded.facts.computed, self.clock()
        trace_apart("load", started, took, model=model, computed=computed, memory_bytes=memory_bytes, **stages)

    async def _fetch(self, record: ModelRecord) -> FetchedModel:
        download = record.download
        assert download is not None
        resolved, report = record.resolved, record.stages_s.__setitem__
        return await on_thread(f"sie-fetch-{resolved.id}", lambda: self.loader.fetch(resolved, report, download.moved))

    async def _place(self, record: ModelRecord, fetched: FetchedModel) -> tuple[LoadedModel, int]:
        # Load a fetched model once there is room; return it with the bytes it takes.
        record.move(State.QUEUED)
        asked, model = self.clock(), record.resolved.id
        made: LoadedModel | None = None

        async def load() -> LoadedModel:
            nonlocal made
            if record.state is State.QUEUED:
                record.stages_s["room"] = self.clock() - asked
                record.move(State.LOADING)
            report = record.stages_s.__setitem__
            shown = asyncio.create_task(show_load(model, record.stages_s, self.loader.bar, self.clock))
            try:
                made = await on_thread(f"sie-load-{model}", lambda: self.loader.load(fetched, report), _discard)
            finally:
                shown.cancel()
            return made

        precision = self.loader.precision(fetched.resolved)
        need = partial(self.estimates.before, fetched.resolved, fetched.card, precision)
        try:
            placed = await self.residency.place(model, need, load, (record.took or self._typical()).work)
        except asyncio.CancelledError:
            if made is not None:  # it was cancelled while the device was measured after the load
                threading.Thread(target=_discard, args=(made,), name=f"sie-discard-{model}", daemon=True).start()
            raise
        loaded = placed.result
        return loaded, self.estimates.after(fetched.resolved, placed.grown, loaded.facts.memory_bytes, placed.need)

    def _loaded(self, record: ModelRecord) -> None:
        model = record.resolved.id
        if record.took is not None and record.import_s < LONGEST_IMPORT_S:
            self._took.append(record.took)
        self.metrics.loads.labels(model, "ok").inc()
        self.metrics.model_memory.labels(model).set(record.memory_bytes or 0)
        for stage, seconds in record.stages_s.items():
            self.metrics.load_seconds.labels(model, stage).set(seconds)
        assert record.loaded is not None
        family, facts, held = record.loaded.family.id, record.loaded.facts, record.memory_bytes or 0
        told = {
            "model": model,
            "family": family,
            "precision": facts.precision,
            "runner": facts.notes.get("runner"),
            "memory_bytes": held,
            "load_stages_s": {stage: round(seconds, 3) for stage, seconds in record.stages_s.items()},
        }
        seconds = record.stages_s["total"]
        log.info(
            "%s is loaded in %.1f s by the family %s: %s, %.0f MB", model, seconds, family, facts.computed, held / 1e6,
            extra={"facts": told},
        )  # fmt: skip

    def _typical(self) -> Took:
        # Estimate a first load by the median of the latest loads.
        if not self._took:
            return Took(0.0, UNKNOWN_S)
        return Took(*map(median, zip(*self._took, strict=True)))

    def _wait_s(self, record: ModelRecord, wait: LoadWait) -> float:
        # Return the seconds a request waits for a load; 0 if its client is asked to retry at once.
        if not wait.if_soon:
            return wait.seconds
        left_s = self._remaining_s(record)
        if record.took is not None:
            return wait.seconds * (1 + ERROR_SHARE) if left_s <= wait.seconds else 0.0
        # A load that exceeds its guess may take any time: no request starts or continues to wait for it.
        guess_holds = left_s <= min(wait.seconds, GUESSED_S) and not self._overdue(record)
        return left_s * (1 + ERROR_SHARE) if guess_holds else 0.0

    def _overdue(self, record: ModelRecord) -> bool:
        # Whether a stage of a first load has taken longer than was guessed.
        guessed_s = {State.FETCHING: self._typical().fetch, State.LOADING: self._typical().work}.get(record.state)
        if guessed_s is None:
            return False
        return self.clock() - record.stage_started > guessed_s * (1 + ERROR_SHARE) + LEAST_RETRY_S

    def _remaining_s(self, record: ModelRecord) -> float:
        return record.remaining_s(self._typical(), self.residency.loads.turn_s(record.resolved.id))

    def _not_ready(self, record: ModelRecord) -> InferenceError:
        # Make the error of a request that does not wait any longer, and keep the model for it.
        model = record.resolved.id
        if record.state in (State.DRAINING, State.UNLOADING) and not record.evicted:
            return InferenceError("MODEL_NOT_LOADED", f"{model} is being unloaded; retry shortly.")
        left_s = self._remaining_s(record)
        record.expect_back(left_s)
        fetched = "" if record.download is None else f" ({record.download.describe()} fetched)"
        message = f"{model} is being loaded{fetched}; retry in {left_s:.1f} s."
        return InferenceError("MODEL_LOADING", message, retry_after_s=left_s)


def _discard(loaded: LoadedModel) -> None:
    # Unload a model whose load was cancelled during its work on the device.
    loaded.adapter.unload()


async def _cancel(record: ModelRecord) -> None:
    # Cancel the load or unload of a record; afterwards it is at rest.
    if (task := record.task) is None:
        return
    task.cancel()
    await asyncio.wait([task])
    if record.state in ON_THE_WAY:  # a task cancelled before it began cannot move it
        record.move(State.AVAILABLE)
