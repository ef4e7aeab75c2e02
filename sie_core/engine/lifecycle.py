"""Loads models when they are asked for and unloads them when told to. Event loop only.

It must not know requests, batches or HTTP; a memory manager would decide above it what to unload.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from sie_sdk.errors import error_spec

from sie_core.contracts import Adapter, InferenceError, ResolvedModel
from sie_core.engine.heap import trim_heap
from sie_core.engine.load_failures import failed_load
from sie_core.engine.loaded import LoadedModel
from sie_core.engine.loading import Loader
from sie_core.engine.metrics import EngineMetrics
from sie_core.engine.request_errors import unavailable
from sie_core.engine.slots import ModelSlot
from sie_core.engine.threads import on_thread

log = logging.getLogger(__name__)

LOADS_REMEMBERED = 64
CLOSE_LIMIT_S = 5.0
"""How long a close waits for adapters to unload; the process ends anyway, and frees what they hold."""

clock = time.monotonic


class Queues(Protocol):
    """Who serves the queues of loaded models."""

    def add_model(self, model: LoadedModel) -> None:
        """Serve a model's queue."""

    def remove_model(self, model: LoadedModel) -> None:
        """Stop serving it; nothing waits in it."""


class Lifecycle:
    """The slots of every model that was ever asked for."""

    def __init__(self, loader: Loader, queues: Queues, metrics: EngineMetrics) -> None:
        self._loader = loader
        self._queues = queues
        self._metrics = metrics
        self._slots: dict[str, ModelSlot] = {}
        self._closed = False
        self._loads_s: deque[float] = deque(maxlen=LOADS_REMEMBERED)

    def slot(self, resolved: ResolvedModel) -> ModelSlot:
        """Return a model's slot."""
        found = self._slots.get(resolved.id)
        if found is None:
            found = self._slots[resolved.id] = ModelSlot(resolved)
        return found

    def known(self, resolved: ResolvedModel) -> ModelSlot | None:
        """Return a model's slot, or None where it was never asked for."""
        return self._slots.get(resolved.id)

    async def hold(self, resolved: ResolvedModel, wait_s: float) -> LoadedModel:
        """Return the loaded model, held: `use.leave()` must follow. Starts the load where need be.

        Args:
            resolved: The model.
            wait_s: How long a load, or an unload, may be waited for.

        Raises:
            InferenceError: `MODEL_LOADING` with the time it will take yet, `MODEL_NOT_LOADED` while it is being
                unloaded, `MODEL_LOAD_FAILED` until a failed load may be tried again; `QUEUE_UNAVAILABLE` once closed.
        """
        slot = self.slot(resolved)
        until = clock() + wait_s
        waited = False
        while True:
            now = clock()
            if self._closed:
                raise unavailable("the engine is closed")
            if slot.state == "loaded" and slot.loaded is not None:
                slot.loaded.use.enter()
                return slot.loaded
            if slot.state == "failed" and slot.failure is not None and (waited or not slot.failure.may_retry(now)):
                raise slot.failure.error(now)
            change = slot.change or self._start_load(slot)
            if now >= until:
                raise self._not_ready(slot, now)
            await asyncio.wait([change], timeout=until - now)
            waited = True

    async def load(self, resolved: ResolvedModel) -> None:
        """Load a model now, whatever failed before; return when it is loaded.

        Raises:
            InferenceError: `MODEL_LOAD_FAILED`.
        """
        slot = self.slot(resolved)
        while slot.state != "loaded":
            await asyncio.wait([slot.change or self._start_load(slot)])
            if slot.state == "failed" and slot.failure is not None:
                raise slot.failure.error(clock())

    async def unload(self, resolved: ResolvedModel) -> None:
        """Unload a model once nobody uses it; new requests are turned away meanwhile."""
        slot = self.slot(resolved)
        while slot.change is not None:
            await asyncio.wait([slot.change])
        if slot.loaded is not None:
            slot.state = "unloading"
            slot.change = asyncio.create_task(self._unload(slot))
            await asyncio.wait([slot.change])

    async def close(self) -> None:
        """Unload every model at once; the device has stopped."""
        self._closed = True
        for slot in self._slots.values():
            if slot.change is not None:
                slot.change.cancel()
        unloads = [self._give_back(slot, _unload_adapter) for slot in self._slots.values()]
        try:
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await asyncio.gather(*unloads)
        except TimeoutError:
            log.error("adapters that did not unload in %g s were left behind", CLOSE_LIMIT_S)

    def _start_load(self, slot: ModelSlot) -> asyncio.Task[None]:
        slot.state = "loading"
        slot.load_started = clock()
        slot.stages_s = {}
        slot.change = asyncio.create_task(self._load(slot))
        return slot.change

    async def _load(self, slot: ModelSlot) -> None:
        model = slot.resolved.id
        try:
            loaded = await on_thread(f"sie-load-{model}", lambda: self._load_now(slot))
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
            slot.change = None

    def _load_now(self, slot: ModelSlot) -> LoadedModel:
        try:
            return self._loader.load(slot.resolved, slot.stages_s.__setitem__)
        finally:
            trim_heap()

    def _loaded(self, slot: ModelSlot, loaded: LoadedModel) -> None:
        slot.load_s = slot.stages_s["total"] = clock() - slot.load_started
        self._loads_s.append(slot.load_s)
        slot.loaded, slot.failure, slot.state = loaded, None, "loaded"
        self._queues.add_model(loaded)
        self._metrics.loads.labels(loaded.id, "ok").inc()
        for stage, seconds in slot.stages_s.items():
            self._metrics.load_seconds.labels(loaded.id, stage).set(seconds)
        log.info("%s loaded in %.2f s: %s", loaded.id, slot.load_s, _stages(slot))

    async def _unload(self, slot: ModelSlot) -> None:
        try:
            if slot.loaded is not None:
                await slot.loaded.use.unused()
                self._queues.remove_model(slot.loaded)
            await self._give_back(slot, _unload_and_collect)
        finally:
            slot.change = None

    async def _give_back(self, slot: ModelSlot, how: Callable[[str, list[Adapter]], None]) -> None:
        """Let the adapter free what it holds, and then lose its last reference."""
        if slot.loaded is None:
            return
        adapters, slot.loaded = [slot.loaded.adapter], None
        await on_thread(f"sie-unload-{slot.resolved.id}", lambda: how(slot.resolved.id, adapters))
        slot.state = "available"
        self._metrics.unloads.labels(slot.resolved.id).inc()

    def _not_ready(self, slot: ModelSlot, now: float) -> InferenceError:
        model = slot.resolved.id
        if slot.state == "unloading":
            return InferenceError("MODEL_NOT_LOADED", f"{model} is being unloaded; retry shortly.")
        left = slot.remaining_s(now, self._typical_load_s())
        return InferenceError("MODEL_LOADING", f"{model} is being loaded; retry in {left:.0f} s.", retry_after_s=left)

    def _typical_load_s(self) -> float:
        """Estimate a load nobody has measured yet by those of other models, or by the error table's pause."""
        if self._loads_s:
            return sum(self._loads_s) / len(self._loads_s)
        return error_spec("MODEL_LOADING").retry_after_s or 0.0


def _unload_adapter(model: str, adapters: list[Adapter]) -> None:
    """Unload the one adapter in the list, and take it out."""
    try:
        adapters.pop().unload()
    except BaseException:
        log.exception("unloading %s failed", model)


def _unload_and_collect(model: str, adapters: list[Adapter]) -> None:
    _unload_adapter(model, adapters)
    gc.collect()  # what an adapter holds is large, and may be in a cycle
    trim_heap()


def _stages(slot: ModelSlot) -> str:
    return ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in slot.stages_s.items())
