"""Loads models when requests ask for them, and unloads them when told to. Event loop only."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from sie_sdk.errors import error_spec

from sie_core.concurrency.threads import on_thread
from sie_core.contracts import InferenceError, ResolvedModel
from sie_core.engine.metrics import EngineMetrics
from sie_core.engine.models.lease import Lease
from sie_core.engine.models.load_failure import FailedLoad, failed_load
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.models.record import LEAST_RETRY_S, ON_THE_WAY, RESTING, ModelRecord, Registry, State
from sie_core.engine.requests.errors import unavailable
from sie_core.engine.residency.loader import Fetched, Loader
from sie_core.engine.residency.memory import Estimates, trim_heap
from sie_core.engine.residency.residency import Residency
from sie_core.engine.residency.residents import Queues, Unloader
from sie_core.engine.timeouts import Timeouts

log = logging.getLogger(__name__)

LOADS_REMEMBERED = 64


class Lifecycle:
    """Moves every model of the catalog through its states.

    Args:
        registry: The models.
        loader: Fetches and loads them.
        residency: Places them on the device.
        unloader: Unloads them.
        estimates: Memory that models take.
        queues: Where a loaded model gets its queue.
        metrics: Counts loads.
        timeouts: How long failed loads cool down.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        registry: Registry,
        loader: Loader,
        residency: Residency,
        unloader: Unloader,
        estimates: Estimates,
        queues: Queues,
        metrics: EngineMetrics,
        timeouts: Timeouts,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._loader = loader
        self._residency = residency
        self._unloader = unloader
        self._estimates = estimates
        self._queues = queues
        self._metrics = metrics
        self._timeouts = timeouts
        self._clock = clock
        self._closed = False
        self._loads_s: deque[float] = deque(maxlen=LOADS_REMEMBERED)

    async def acquire(self, resolved: ResolvedModel, wait_s: float) -> tuple[LoadedModel, Lease]:
        """Return the loaded model with a lease on it, which the caller releases. Starts the load if needed.

        Args:
            resolved: The model.
            wait_s: How long to wait for a load or an unload.

        Raises:
            InferenceError: `MODEL_LOADING` with the time it will still take, `MODEL_NOT_LOADED` while it is being
                unloaded, `MODEL_LOAD_FAILED` until a failed load may be tried again; `MODEL_NOT_FOUND` where it was
                removed meanwhile; `QUEUE_UNAVAILABLE` once closed.
        """
        record = self._registry.of(resolved)
        until = self._clock() + wait_s
        waited = False
        while True:
            now = self._clock()
            if self._closed:
                raise unavailable("the engine is closed")
            record = self._current(record)
            if (loaded := record.ready()) is not None:
                return loaded, loaded.leases.acquire()
            if record.state is State.FAILED and record.failure and (waited or not record.failure.may_retry(now)):
                raise record.failure.error(now)
            self._start_load(record)
            if now >= until:
                raise _not_ready(record, self._typical_load_s())
            await record.at_rest(until - now)
            waited = True

    async def load(self, resolved: ResolvedModel) -> None:
        """Load a model now, whatever failed before; return when it is loaded.

        Raises:
            InferenceError: `MODEL_LOAD_FAILED`; `MODEL_NOT_FOUND` where it was removed meanwhile.
        """
        record = self._registry.of(resolved)
        while record.ready() is None:
            if self._closed:
                raise unavailable("the engine is closed")
            self._start_load(record)
            await record.at_rest()
            record = self._current(record)
            if record.state is State.FAILED and record.failure is not None:
                raise record.failure.error(self._clock())

    async def load_record(self, record: ModelRecord) -> None:
        """Load a record, unless it is retired or loaded. Afterwards it holds the model, or the failure."""
        if not record.retired:
            self._start_load(record)
            await record.at_rest()

    async def retire(self, record: ModelRecord) -> None:
        """Unload a retired record once its last request is answered, also where a load is under way; then remove it."""
        if record.state in (State.FETCHING, State.QUEUED):
            await _cancel(record)  # the device holds nothing of it yet
        while record.state not in RESTING or record.loaded is not None:
            if record.state in RESTING:
                await self._unloader.unload(record)
            else:
                await record.at_rest()
        self._registry.forget(record)

    async def unload(self, resolved: ResolvedModel, wait_s: float | None = None) -> bool:
        """Unload a model once its last lease is released; new requests are refused meanwhile.

        Args:
            resolved: The model.
            wait_s: How long it may stay in use; beyond it the model serves on. None for no limit.

        Returns:
            Whether it is not loaded now.
        """
        record = self._registry.of(resolved)
        while record.state not in RESTING:
            await record.at_rest()
        await self._unloader.unload(record, wait_s)
        return record.loaded is None

    async def close(self) -> None:
        """Unload every model at once; the device has stopped."""
        self._closed = True
        records = list(self._registry)
        await asyncio.gather(*(_cancel(record) for record in records))
        await self._unloader.close(records)

    def failure(self, resolved: ResolvedModel) -> FailedLoad | None:
        """Return a model's last failed load; None where the last one succeeded, or there was none."""
        record = self._registry.known(resolved.id)
        return None if record is None else record.failure

    def notes(self) -> list[str]:
        """List the loads whose download makes no progress."""
        downloads = [(record.resolved.id, record.download) for record in self._registry if record.download is not None]
        return [f"{model}: {problem}" for model, download in downloads if (problem := download.problem())]

    def _current(self, record: ModelRecord) -> ModelRecord:
        # Return a record, or the one that replaced it where the catalog changed meanwhile.
        if not record.retired:
            return record
        model = record.resolved.id
        current = self._registry.known(model)
        if current is None:
            raise InferenceError("MODEL_NOT_FOUND", f"The model {model!r} is no longer served here.", param="model")
        return current

    def _start_load(self, record: ModelRecord) -> None:
        # Start a load, unless the model is loaded, or a load or unload is under way.
        if record.state in (State.AVAILABLE, State.FAILED):
            record.move(State.FETCHING)
            record.task = asyncio.create_task(self._load(record))

    async def _load(self, record: ModelRecord) -> None:
        model = record.resolved.id
        try:
            loaded, memory_bytes = await self._place(record, await self._fetch(record))
        except asyncio.CancelledError:
            record.move(State.AVAILABLE)
            raise
        except BaseException as error:
            failure = failed_load(model, error, record.failure, self._clock(), self._timeouts)
            self._metrics.loads.labels(model, failure.error_class).inc()
            record.move(State.FAILED, failure=failure)
            return
        self._queues.add_model(loaded)
        record.move(State.READY, loaded=loaded, memory_bytes=memory_bytes)
        self._loaded(record)

    async def _fetch(self, record: ModelRecord) -> Fetched:
        download = record.download
        assert download is not None
        resolved, report = record.resolved, record.stages_s.__setitem__
        return await on_thread(f"sie-fetch-{resolved.id}", lambda: self._loader.fetch(resolved, report, download.moved))

    async def _place(self, record: ModelRecord, fetched: Fetched) -> tuple[LoadedModel, int]:
        # Load a fetched model once there is room; return it with the bytes it takes.
        record.move(State.QUEUED)
        asked, model = self._clock(), record.resolved.id
        made: LoadedModel | None = None

        async def load() -> LoadedModel:
            nonlocal made
            if record.state is State.QUEUED:
                record.stages_s["room"] = self._clock() - asked
                record.move(State.LOADING)
            made = await on_thread(f"sie-load-{model}", lambda: self._load_now(record, fetched), _discard)
            return made

        try:
            placed = await self._residency.place(
                model, lambda: self._estimates.before(fetched.resolved, fetched.card, fetched.precision), load
            )
        except asyncio.CancelledError:
            if made is not None:  # it was cancelled while the device was measured after the load
                threading.Thread(target=_discard, args=(made,), name=f"sie-discard-{model}", daemon=True).start()
            raise
        loaded = placed.result
        return loaded, self._estimates.after(fetched.resolved, placed.grown, loaded.facts.memory_bytes, placed.need)

    def _load_now(self, record: ModelRecord, fetched: Fetched) -> LoadedModel:
        try:
            return self._loader.load(fetched, record.stages_s.__setitem__)
        finally:
            trim_heap()

    def _loaded(self, record: ModelRecord) -> None:
        model, load_s = record.resolved.id, record.load_s or 0.0
        self._loads_s.append(load_s)
        self._metrics.loads.labels(model, "ok").inc()
        self._metrics.model_memory.labels(model).set(record.memory_bytes or 0)
        for stage, seconds in record.stages_s.items():
            self._metrics.load_seconds.labels(model, stage).set(seconds)
        stages = ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in record.stages_s.items())
        log.info("%s loaded in %.2f s: %s", model, load_s, stages)

    def _typical_load_s(self) -> float:
        # Estimate a first load by the mean of other models' loads, or by the error table's pause.
        if self._loads_s:
            return max(LEAST_RETRY_S, sum(self._loads_s) / len(self._loads_s))
        return error_spec("MODEL_LOADING").retry_after_s or 0.0


def _not_ready(record: ModelRecord, typical_s: float) -> InferenceError:
    model = record.resolved.id
    leaving = record.state in (State.DRAINING, State.UNLOADING)
    if leaving and not record.evicted:
        return InferenceError("MODEL_NOT_LOADED", f"{model} is being unloaded; retry shortly.")
    left_s = typical_s if leaving else record.remaining_s(typical_s)
    return InferenceError("MODEL_LOADING", f"{model} is being loaded; retry in {left_s:.0f} s.", retry_after_s=left_s)


def _discard(loaded: LoadedModel) -> None:
    # Unload a model whose load was cancelled while it was at work.
    loaded.adapter.unload()


async def _cancel(record: ModelRecord) -> None:
    # Cancel the load or unload of a record; afterwards it is at rest.
    if (task := record.task) is None:
        return
    task.cancel()
    await asyncio.wait([task])
    if record.state in ON_THE_WAY:  # a task cancelled before it began cannot move it
        record.move(State.AVAILABLE)
