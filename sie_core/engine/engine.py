"""The engine: an `InferenceBackend` over the models of a catalog on one device."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, cast

from sie_core.catalog import Catalog
from sie_core.catalog.info import describe
from sie_core.catalog.sightings import Sightings
from sie_core.concurrency.leases import Lease
from sie_core.concurrency.threads import on_thread
from sie_core.contracts import (
    DecodeRequest,
    Device,
    EngineStatus,
    Health,
    InferenceError,
    InferenceReply,
    InferenceRequest,
    LoadWait,
    ModelInfo,
    ResolvedModel,
    TokenizeRequest,
)
from sie_core.engine.metrics import EngineMetrics
from sie_core.engine.models.asked import Asked
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.models.record import Registry
from sie_core.engine.models.served import Served
from sie_core.engine.pipeline.pipeline import Pipeline
from sie_core.engine.pipeline.tokenizing import Tokens
from sie_core.engine.requests.admission import Admission, AnyRequest, waiting_for_load
from sie_core.engine.requests.task import resolve_task
from sie_core.engine.residency.lifecycle import Lifecycle
from sie_core.engine.residency.preload import Preload
from sie_core.engine.residency.residency import Residency
from sie_core.engine.residency.rollout import Rollout
from sie_core.engine.timeouts import Timeouts
from sie_core.memory.neighbours import crowding
from sie_core.plugins import PluginSet

# For a LoRA adapter that is loaded before requests ask for it.
LORA_WAIT_S = 600.0

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Engine:
    """Loads models at their first request and answers requests; `build_engine` assembles one.

    Every method is called on one event loop: `start` first, `close` last. Methods that take a model's name raise
    `InferenceError` `MODEL_NOT_FOUND` for an unknown one, naming near matches.
    """

    device: Device
    metrics: EngineMetrics
    admission: Admission
    pipeline: Pipeline
    registry: Registry
    residency: Residency
    lifecycle: Lifecycle
    rollout: Rollout
    preload: Preload
    sightings: Sightings
    installed: PluginSet
    served: Served
    # The share of the device in use from which models are evicted.
    pressure: float
    timeouts: Timeouts
    clock: Callable[[], float]
    _note: str | None = None

    def __post_init__(self) -> None:
        self.every_option = self.installed.option_names()
        self.served.on_change(self._changed)
        self.metrics.config_problems.set(len(self.catalog.problems))
        self.metrics.watch(
            lambda: self.admission.in_flight,
            self.pipeline.device.queue.queued,
            lambda: len(self.registry.failing()),
            lambda: len(self.lifecycle.notes()),
            lambda: self.health().live_problem is None,
        )

    async def start(self) -> None:
        """Accept requests from now on, and load the models to preload; returns when each was tried once."""
        self.pipeline.start(self.residency.free_for_run)
        self.sightings.again()
        await self.sightings.settled()
        self.admission.open()
        await self.residency.start()
        await self.preload.run()

    async def close(self) -> None:
        """Stop everything: requests in flight answer `QUEUE_UNAVAILABLE`, threads are joined, models freed."""
        self.admission.close("the engine is closed")
        self.preload.cancel()
        self.sightings.close()
        self.served.close()
        self.residency.stop()
        self.pipeline.stop("the engine is closing")
        joined = await on_thread("sie-close", lambda: self.pipeline.close(self.timeouts.close_s))
        if not joined:
            where = self.pipeline.device.health.problem() or "a CPU stage"
            log.error("threads still at work were left behind: %s", where)
        self.rollout.close()
        await self.lifecycle.close()
        self.residency.close()

    @property
    def catalog(self) -> Catalog:
        """The snapshot in force."""
        return self.served.catalog

    def follow(self, catalog: Catalog) -> None:
        """Serve another snapshot from now on; loaded models are rolled out while requests go on."""
        self.served.follow(catalog)

    def pin(self, models: Iterable[str]) -> None:
        """Load these models and evict them no more; those pinned before by this call are let go."""
        self.preload.pin(models)

    def note(self, problem: str | None) -> None:
        """Take why the catalog cannot be followed just now, for health and metrics; None once it can again."""
        self._note = problem
        self.metrics.unfollowed.set(problem is not None)

    async def infer(self, request: InferenceRequest) -> InferenceReply:
        """Answer `request`, or raise the `InferenceError` that says why not; a cancelled call drops its queued work."""
        model, outcome = "", "ok"
        try:
            await self.admission.begun()
            resolved = await self.served.resolve(request.model)
            model = resolved.id
            with self.admission.admitted():
                return await self._answer(request, resolved)
        except InferenceError as error:
            outcome = error.code
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            self.metrics.requests.labels(request.operation, model, outcome).inc()

    async def tokenize(self, request: TokenizeRequest) -> Tokens:
        """List the tokens of texts by the model's own tokenizer; raises `INVALID_INPUT` if its family shows none."""
        return cast("Tokens", await self._ask_tokenizer(request))

    async def decode(self, request: DecodeRequest) -> Sequence[str]:
        """Decode tokens to texts; raises `INVALID_INPUT` if the model's family cannot decode."""
        return cast("Sequence[str]", await self._ask_tokenizer(request))

    async def load(self, model: str, lora: str | None = None) -> None:
        """Load a model now, whatever failed before; return when it is loaded, or raise `MODEL_LOAD_FAILED`.

        Args:
            model: The model.
            lora: One of its LoRA adapters that is loaded too; raises as `Loras.acquire` does.
        """
        resolved = await self.served.resolve(model)
        await self.lifecycle.load(resolved)
        if lora is not None:
            wait = LoadWait(LORA_WAIT_S)
            loaded, lease = await self.lifecycle.acquire(resolved, wait)
            with lease:
                _, of_lora = await loaded.loras.acquire(lora, wait)
                of_lora.release()

    async def unload(self, model: str) -> bool:
        """Unload a model once its requests are answered, permanently unless it is pinned; False if it stays in use."""
        resolved = self.catalog.resolve(model)
        unloaded = await self.lifecycle.unload(resolved, self.timeouts.asked_unload_s)
        self.preload.again({resolved.id})
        return unloaded

    def models(self) -> list[ModelInfo]:
        """List every served model, those first whose weights are here."""
        self.sightings.refresh()
        listed = [self._describe(resolved) for resolved in self.catalog.models()]
        return sorted(listed, key=lambda model: not model.available)

    def known_models(self, most: int) -> list[ModelInfo]:
        """List up to `most` models known beyond their configs: requested ones, and those with weights here."""
        self.sightings.refresh()
        names = dict.fromkeys((*(record.resolved.id for record in self.registry), *self.sightings.seen()))
        known = (self.catalog.entries[name] for name in names if name in self.catalog.entries)
        return [self._describe(resolved) for resolved in islice(known, most)]

    def model(self, model: str) -> ModelInfo:
        """Describe one model."""
        self.sightings.refresh()
        return self._describe(self.catalog.resolve(model))

    async def describe(self, model: str) -> ModelInfo:
        """Describe one model for a request that is being answered."""
        return self.model(model)

    def plugins(self) -> list[Mapping[str, Any]]:
        """Describe every plugin, broken ones with their cause."""
        return [report.as_dict() for report in self.installed.reports_now()]

    def health(self) -> Health:
        """Report what is wrong: with the device for liveness; also with preload and admission for readiness."""
        live = self.pipeline.problem() or self.residency.problem()
        device = self.pipeline.device
        failing = device.queue.problem() or device.health.scheduler_problem()
        ready = live or self.admission.closed_because or self.preload.problem or failing
        crowded = crowding(self.residency.measured, self.pressure)
        notes = [note for note in (self._note, self.catalog.note, crowded) if note]
        return Health(live, ready, (*notes, *self.registry.failing(), *self.lifecycle.notes(), *self.pipeline.notes()))

    def status(self) -> EngineStatus:
        """Report the state of the device, and of every queue, model and load; never waits."""
        cost, nbytes = self.pipeline.held()
        return EngineStatus(
            device=self.device,
            memory=self.residency.measured,
            threshold=self.pressure,
            in_flight=self.admission.in_flight,
            queued=self.pipeline.device.queue.queued_by_model(),
            prepared_cost=cost,
            prepared_bytes=nbytes,
            models=self.registry.status(),
            loads=self.residency.loads.status(),
            stages={**self.pipeline.stages(), "measure": self.residency.memory.status()},
        )

    def _changed(self, before: Catalog, after: Catalog) -> None:
        self.metrics.config_problems.set(len(after.problems))
        self.preload.again(self.rollout.follow(before, after))
        self.sightings.again()

    def _describe(self, resolved: ResolvedModel) -> ModelInfo:
        record, seen = self.registry.known(resolved.id), self.sightings.of(resolved.id)
        loaded = None if record is None else record.loaded
        facts = loaded.facts if loaded else seen.facts if seen else None
        available = seen is not None or resolved.config.weightless
        return self.registry.described(describe(resolved, facts, self.installed.postprocessors, available=available))

    async def _ask_tokenizer(self, request: TokenizeRequest | DecodeRequest) -> Any:
        await self.admission.begun()
        resolved = await self.served.resolve(request.model)
        with self.admission.admitted():
            model, lease = await self._acquire(resolved, request)
            with lease:
                return await self.pipeline.ask_tokenizer(request, model)

    async def _acquire(self, resolved: ResolvedModel, request: AnyRequest) -> tuple[LoadedModel, Lease]:
        with waiting_for_load(request, self.clock) as wait:
            return await self.lifecycle.acquire(resolved, wait)

    async def _answer(self, request: InferenceRequest, resolved: ResolvedModel) -> InferenceReply:
        arrived = self.clock()
        model, lease = await self._acquire(resolved, request)
        with lease:
            asked = resolve_task(request, model, self.installed.output_dtypes, self.every_option)
            if asked.lora is None:
                reply = await self.pipeline.answer(request, model, asked.task, asked.plan, arrived)
            else:
                reply = await self._answer_with(asked.lora, request, model, asked, arrived)
            config = None if self.catalog.config_epoch is None else model.config_key
            return replace(reply, ignored_options=asked.ignored, config=config) if asked.ignored or config else reply

    async def _answer_with(
        self, name: str, request: InferenceRequest, model: LoadedModel, asked: Asked, arrived: float
    ) -> InferenceReply:
        with waiting_for_load(request, self.clock) as wait:
            lora, lease = await model.loras.acquire(name, wait)
        with lease:
            return await self.pipeline.answer(request, model, replace(asked.task, lora=lora), asked.plan, arrived)
