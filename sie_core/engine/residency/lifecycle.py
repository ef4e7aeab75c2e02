"""Loads models when they are asked for and unloads them when told to. Event loop only.

It must not know requests, batches or HTTP, nor which models are unloaded to make room: `keeper` does that beside it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque

from sie_sdk.errors import error_spec

from sie_core.concurrency.threads import on_thread
from sie_core.contracts import InferenceError, ResolvedModel
from sie_core.engine.metrics import EngineMetrics
from sie_core.engine.models.download_progress import Fetching
from sie_core.engine.models.load_failure import failed_load
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.models.record import LEAST_RETRY_S, ModelSlot, Slots
from sie_core.engine.requests.errors import unavailable
from sie_core.engine.residency.loader import Loader
from sie_core.engine.residency.placing import Placing
from sie_core.engine.residency.unloading import Queues, Unloader

log = logging.getLogger(__name__)

LOADS_REMEMBERED = 64

clock = time.monotonic


class Lifecycle:
    """Takes every model of the catalog through its states.

    Args:
        slots: The models.
        loader: Fetches their weights.
        placing: Puts them onto the device.
        unloader: Unloads them.
        queues: Told of every loaded model.
        metrics: Counts loads.
    """

    def __init__(
        self, slots: Slots, loader: Loader, placing: Placing, unloader: Unloader, queues: Queues, metrics: EngineMetrics
    ) -> None:
        self._slots = slots
        self._loader = loader
        self._placing = placing
        self._unloader = unloader
        self._queues = queues
        self._metrics = metrics
        self._closed = False
        self._loads_s: deque[float] = deque(maxlen=LOADS_REMEMBERED)

    def slot(self, resolved: ResolvedModel) -> ModelSlot:
        """Return a model's slot."""
        return self._slots.of(resolved)

    def known(self, resolved: ResolvedModel) -> ModelSlot | None:
        """Return a model's slot, or None where it was never asked for."""
        return self._slots.known(resolved.id)

    async def hold(self, resolved: ResolvedModel, wait_s: float) -> LoadedModel:
        """Return the loaded model, held: `use.leave()` must follow. Starts the load where need be.

        Args:
            resolved: The model.
            wait_s: How long a load, or an unload, may be waited for.

        Raises:
            InferenceError: `MODEL_LOADING` with the time it will take yet, `MODEL_NOT_LOADED` while it is being
                unloaded, `MODEL_LOAD_FAILED` until a failed load may be tried again; `MODEL_NOT_FOUND` where it is
                removed meanwhile; `QUEUE_UNAVAILABLE` once closed.
        """
        slot = self.slot(resolved)
        until = clock() + wait_s
        waited = False
        while True:
            now = clock()
            if self._closed:
                raise unavailable("the engine is closed")
            slot = self._current(slot)
            if slot.state == "loaded" and slot.loaded is not None:
                slot.loaded.use.enter()
                return slot.loaded
            if slot.state == "failed" and slot.failure is not None and (waited or not slot.failure.may_retry(now)):
                raise slot.failure.error(now)
            change = slot.change or self._start_load(slot)
            if now >= until:
                self._load_after_eviction(slot)
                raise self._not_ready(slot, now)
            await asyncio.wait([change], timeout=until - now)
            waited = True

    async def load(self, resolved: ResolvedModel) -> None:
        """Load a model now, whatever failed before; return when it is loaded.

        Raises:
            InferenceError: `MODEL_LOAD_FAILED`, `MODEL_NOT_FOUND` where it is removed meanwhile.
        """
        slot = self.slot(resolved)
        while slot.state != "loaded":
            if self._closed:
                raise unavailable("the engine is closed")
            await asyncio.wait([slot.change or self._start_load(slot)])
            slot = self._current(slot)
            if slot.state == "failed" and slot.failure is not None:
                raise slot.failure.error(clock())

    async def load_slot(self, slot: ModelSlot) -> None:
        """Load a slot, unless it is loaded or retired; afterwards it holds the model, or why it could not be loaded."""
        if not slot.retired and slot.state != "loaded":
            await asyncio.wait([slot.change or self._start_load(slot)])

    async def retire(self, slot: ModelSlot) -> None:
        """Unload what a retired slot holds, or comes to hold, once its last request is answered; then forget it."""
        if slot.awaits_device():
            await self._cancel_load(slot)
        while slot.change is not None or slot.loaded is not None:
            if slot.change is not None:
                await asyncio.wait([slot.change])
            else:
                await self._unloader.unload(slot)
        self._slots.forget(slot)

    async def unload(self, resolved: ResolvedModel, wait_s: float | None = None) -> bool:
        """Unload a model once nobody uses it; new requests are turned away meanwhile.

        Args:
            resolved: The model.
            wait_s: How long it may stay in use; beyond it the model stays loaded. None for no limit.

        Returns:
            Whether it is not loaded now.
        """
        slot = self.slot(resolved)
        while slot.change is not None:
            await asyncio.wait([slot.change])
        await self._unloader.unload(slot, wait_s)
        return slot.loaded is None

    async def close(self) -> None:
        """Unload every model at once; the device has stopped."""
        self._closed = True
        slots = list(self._slots)
        for slot in slots:
            if slot.change is not None:
                slot.change.cancel()
        await self._unloader.close(slots)
        for slot in slots:
            slot.state = "available"

    def problem(self) -> str | None:
        """Say which load hangs, if one does."""
        return self._placing.problem()

    def notes(self) -> list[str]:
        """List the loads that wait for weights of which nothing comes."""
        fetches = [(slot.resolved.id, slot.fetching) for slot in self._slots if slot.fetching is not None]
        return [f"{model}: {problem}" for model, fetching in fetches if (problem := fetching.problem())]

    def _current(self, slot: ModelSlot) -> ModelSlot:
        """Return a slot, or the one in its place where the catalog changed while somebody waited for it."""
        if not slot.retired:
            return slot
        model = slot.resolved.id
        current = self._slots.known(model)
        if current is None:
            raise InferenceError("MODEL_NOT_FOUND", f"The model {model!r} is no longer served here.", param="model")
        return current

    async def _cancel_load(self, slot: ModelSlot) -> None:
        load = slot.change
        if load is None:
            return
        load.cancel()
        await asyncio.wait([load])
        if slot.change is load:  # cancelled before its first step, it could not say so itself
            slot.state, slot.change = "available", None

    def _start_load(self, slot: ModelSlot) -> asyncio.Task[None]:
        if slot.loaded is not None or slot.change is not None:
            raise RuntimeError(f"{slot.resolved.id} cannot be loaded: it is {slot.state}")
        slot.state = "loading"
        slot.load_started = clock()
        slot.stages_s = {}
        slot.change = asyncio.create_task(self._load(slot))
        return slot.change

    def _load_after_eviction(self, slot: ModelSlot) -> None:
        """Load a model again that is being evicted just as somebody asked for it who will not wait."""
        if slot.state != "unloading" or not slot.evicted or slot.change is None:
            return
        slot.evicted = False
        slot.wanted_again = True

        def load(_: asyncio.Task[None]) -> None:
            slot.wanted_again = False
            if slot.state == "available" and slot.change is None and not self._closed and not slot.retired:
                self._start_load(slot)

        slot.change.add_done_callback(load)

    async def _load(self, slot: ModelSlot) -> None:
        model = slot.resolved.id
        try:
            slot.fetching = fetching = Fetching()
            fetched = await on_thread(
                f"sie-fetch-{model}",
                lambda: self._loader.fetch(slot.resolved, slot.stages_s.__setitem__, fetching.moved),
            )
            slot.fetching = None
            loaded, slot.memory_bytes = await self._placing.place(fetched, slot.stages_s.__setitem__)
        except asyncio.CancelledError:
            slot.state = "available"
            raise
        except BaseException as error:
            slot.failure = failed_load(model, error, slot.failure, clock())
            slot.state = "failed"
            self._metrics.loads.labels(model, slot.failure.error_class).inc()
        else:
            self._loaded(slot, loaded)
        finally:
            slot.change = slot.fetching = None

    def _loaded(self, slot: ModelSlot, loaded: LoadedModel) -> None:
        slot.loaded_at = clock()
        slot.load_s = slot.stages_s["total"] = slot.loaded_at - slot.load_started
        self._loads_s.append(slot.load_s)
        slot.loaded, slot.failure, slot.state = loaded, None, "loaded"
        self._queues.add_model(loaded)
        self._metrics.loads.labels(loaded.id, "ok").inc()
        self._metrics.model_memory.labels(loaded.id).set(slot.memory_bytes or 0)
        for stage, seconds in slot.stages_s.items():
            self._metrics.load_seconds.labels(loaded.id, stage).set(seconds)
        log.info("%s loaded in %.2f s: %s", loaded.id, slot.load_s, _stages(slot))

    def _not_ready(self, slot: ModelSlot, now: float) -> InferenceError:
        model = slot.resolved.id
        if slot.state == "unloading" and not slot.wanted_again:
            return InferenceError("MODEL_NOT_LOADED", f"{model} is being unloaded; retry shortly.")
        left = self._typical_load_s() if slot.state == "unloading" else slot.remaining_s(now, self._typical_load_s())
        return InferenceError("MODEL_LOADING", f"{model} is being loaded; retry in {left:.0f} s.", retry_after_s=left)

    def _typical_load_s(self) -> float:
        """Estimate a load nobody has measured yet by those of other models, or by the error table's pause."""
        if self._loads_s:
            return max(LEAST_RETRY_S, sum(self._loads_s) / len(self._loads_s))
        return error_spec("MODEL_LOADING").retry_after_s or 0.0


def _stages(slot: ModelSlot) -> str:
    return ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in slot.stages_s.items())
