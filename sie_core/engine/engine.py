"""The engine: an `InferenceBackend` over the models of a catalog on one device."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

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
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.models.record import Registry
from sie_core.engine.pipeline.pipeline import Pipeline
from sie_core.engine.pipeline.tokenizing import Tokens
from sie_core.engine.requests.admission import Admission
from sie_core.engine.requests.errors import deadline_exceeded
from sie_core.engine.requests.task import Asked, resolve_task
from sie_core.engine.residency.lifecycle import Lifecycle
from sie_core.engine.residency.preload import Preload
from sie_core.engine.residency.residency import Residency
from sie_core.engine.residency.rollout import Rollout
from sie_core.engine.timeouts import Timeouts
from sie_core.memory.neighbours import crowding
from sie_core.plugins import PluginSet

log = logging.getLogger(__name__)

AnyRequest = InferenceRequest | TokenizeRequest | DecodeRequest


@dataclass(frozen=True, slots=True)
class Parts:
    """What an engine is put together from, by `build_engine`."""

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
    # The share of the device in use from which models are evicted.
    pressure: float
    timeouts: Timeouts
    clock: Callable[[], float]


class Engine:
    """Loads models when they are first asked for and answers requests to them; `build_engine` makes one.

    Every method but the constructor is called on one event loop: `start` first, `close` last. A method that is given a
    model's name raises `InferenceError` `MODEL_NOT_FOUND`, naming near matches, where there is none.
    """

    def __init__(self, parts: Parts, plugins: PluginSet, catalog: Catalog) -> None:
        self.device, self.metrics = parts.device, parts.metrics
        self._plugins = plugins
        self._every_option = frozenset(each.name for family in plugins.families.values() for each in family.options)
        self._note: str | None = None
        self._admission, self._pipeline = parts.admission, parts.pipeline
        self._registry = parts.registry
        self._residency, self._pressure = parts.residency, parts.pressure
        self._lifecycle, self._rollout, self._preload = parts.lifecycle, parts.rollout, parts.preload
        self._sightings = parts.sightings
        self._timeouts, self._clock = parts.timeouts, parts.clock
        self._catalog = catalog
        self._adopt(catalog)
        self.metrics.watch(
            lambda: self._admission.in_flight,
            self._pipeline.device.queue.queued,
            lambda: len(self._failing()),
            lambda: len(self._lifecycle.notes()),
        )

    async def start(self) -> None:
        """Take requests from now on, and load what is to be preloaded; returns when each was tried once."""
        self._pipeline.start()
        self._sightings.again()
        await self._sightings.settled()
        self._admission.closed_because = None
        await self._residency.start()
        await self._preload.run()

    async def close(self) -> None:
        """Stop everything: what is still in flight answers `QUEUE_UNAVAILABLE`, threads are joined, models freed."""
        self._admission.closed_because = "the engine is closed"
        self._preload.cancel()
        self._sightings.close()
        self._residency.stop()
        self._pipeline.stop("the engine is closing")
        joined = await on_thread("sie-close", lambda: self._pipeline.close(self._timeouts.close_s))
        if not joined:
            where = self._pipeline.device.health.problem() or "a CPU stage"
            log.error("threads still at work were left behind: %s", where)
        self._rollout.close()
        await self._lifecycle.close()
        self._residency.close()

    @property
    def catalog(self) -> Catalog:
        """The snapshot in force."""
        return self._catalog

    def follow(self, catalog: Catalog) -> None:
        """Serve another snapshot from now on; models that are loaded are brought in line beside their requests."""
        before = self._catalog
        self._adopt(catalog)
        self._preload.follow(self._rollout.follow(before, catalog))
        self._sightings.again()

    def remember_here(self, models: frozenset[str]) -> None:
        """Take which models have their weights on this machine."""
        self._catalog = replace(self._catalog, here=models)

    def note(self, problem: str | None) -> None:
        """Take why the catalog cannot be followed just now, for health and metrics; None once it can again."""
        self._note = problem
        self.metrics.unfollowed.set(problem is not None)

    async def infer(self, request: InferenceRequest) -> InferenceReply:
        """Answer `request`, or raise the `InferenceError` that says why not; a cancelled call drops its queued work."""
        model, outcome = "", "ok"
        try:
            resolved = self._catalog.resolve(request.model)
            model = resolved.id
            with self._admission.admitted():
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
        """List the tokens of texts, by the model's own tokenizer; `INVALID_INPUT` where its family shows none."""
        tokens: Tokens = await self._ask_tokenizer(request)
        return tokens

    async def decode(self, request: DecodeRequest) -> Sequence[str]:
        """Write the texts of tokens; `INVALID_INPUT` where the model's family has no way back from tokens."""
        texts: Sequence[str] = await self._ask_tokenizer(request)
        return texts

    async def load(self, model: str) -> None:
        """Load a model now, whatever failed before; return when it is loaded, or raise `MODEL_LOAD_FAILED`."""
        await self._lifecycle.load(self._catalog.resolve(model))

    async def unload(self, model: str) -> bool:
        """Unload a model once its requests are answered; False where it is in use all the while."""
        return await self._lifecycle.unload(self._catalog.resolve(model), self._timeouts.asked_unload_s)

    def models(self) -> list[ModelInfo]:
        """List every served model, those first whose weights are here."""
        self._sightings.refresh()
        listed = [self._describe(resolved) for resolved in self._catalog.models()]
        return sorted(listed, key=lambda model: not model.available)

    def known_models(self, most: int) -> list[ModelInfo]:
        """List up to `most` models of which more is known than their configs say: asked for, or weights are here."""
        self._sightings.refresh()
        names = dict.fromkeys((*(record.resolved.id for record in self._registry), *self._sightings.seen()))
        entries = self._catalog.entries
        return [self._describe(entries[name]) for name in islice((each for each in names if each in entries), most)]

    def model(self, model: str) -> ModelInfo:
        """Describe one model."""
        self._sightings.refresh()
        return self._describe(self._catalog.resolve(model))

    def accepts_token_ids(self, model: str) -> bool:
        """Whether the model's config takes token ids in place of text."""
        return self._catalog.resolve(model).config.accept_token_ids

    def plugins(self) -> list[Mapping[str, Any]]:
        """Describe every plugin, broken ones with their cause."""
        return [report.as_dict() for report in self._plugins.reports_now()]

    def health(self) -> Health:
        """Say what is wrong: with the device for liveness; also with preload and admission for readiness."""
        live = self._pipeline.problem() or self._residency.problem()
        policies = self._pipeline.device.health.policy_problem()
        ready = live or self._admission.closed_because or self._preload.problem or policies
        crowded = crowding(self._residency.measured, self._pressure)
        notes = [note for note in (self._note, self._catalog.note, crowded) if note]
        failing = [f"{model}: {problem}" for model, problem in self._failing().items()]
        return Health(live, ready, (*notes, *failing, *self._lifecycle.notes(), *self._pipeline.notes()))

    @property
    def queued_cost(self) -> int:
        """Cost units that are queued for the device."""
        return self._pipeline.device.queue.queued()[1]

    @property
    def all_prepared(self) -> bool:
        """Whether no request waits for a thread that prepares it for the device."""
        return not any(stage.waiting for stage in self._pipeline.stages().values())

    def status(self) -> EngineStatus:
        """Tell the state of the device, of every queue, model and load; waits for nothing."""
        cost, nbytes = self._pipeline.held()
        return EngineStatus(
            device=self.device,
            memory=self._residency.measured,
            threshold=self._pressure,
            in_flight=self._admission.in_flight,
            queued=self._pipeline.device.queue.queued_by_model(),
            prepared_cost=cost,
            prepared_bytes=nbytes,
            models=self._registry.status(),
            loads=self._residency.loads.status(),
            stages={**self._pipeline.stages(), "measure": self._residency.stage()},
        )

    def _adopt(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.metrics.config_problems.set(len(catalog.problems))

    def _describe(self, resolved: ResolvedModel) -> ModelInfo:
        record, seen = self._registry.known(resolved.id), self._sightings.of(resolved.id)
        loaded = None if record is None else record.loaded
        facts = loaded.facts if loaded else seen.facts if seen else None
        available = seen is not None or resolved.config.weightless
        info = describe(resolved, facts, self._plugins.postprocessors, available=available)
        info = self._registry.described(info)
        failing = self._pipeline.device.health.model_problem(loaded) if loaded else None
        return info if failing is None else replace(info, notes={**info.notes, "failing": failing})

    def _failing(self) -> dict[str, str]:
        # Say of each loaded model that fails one request after the other that it does.
        loaded = [record.loaded for record in self._registry if record.loaded is not None]
        return {model.id: problem for model in loaded if (problem := self._pipeline.device.health.model_problem(model))}

    async def _ask_tokenizer(self, request: TokenizeRequest | DecodeRequest) -> Any:
        resolved = self._catalog.resolve(request.model)
        with self._admission.admitted():
            model, lease = await self._acquire(resolved, request)
            with lease:
                return await self._pipeline.ask_tokenizer(request, model)

    async def _acquire(self, resolved: ResolvedModel, request: AnyRequest) -> tuple[LoadedModel, Lease]:
        # Return the loaded model and a lease on it, after as much of a load as the request waits for.
        with _deadline_first(request, self._clock):
            return await self._lifecycle.acquire(resolved, self._wait(request))

    def _wait(self, request: AnyRequest) -> LoadWait:
        # How long a request waits for a load: no longer than until its deadline.
        wait, deadline = request.load_wait, request.deadline
        return wait if deadline is None else replace(wait, seconds=min(wait.seconds, deadline - self._clock()))

    async def _answer(self, request: InferenceRequest, resolved: ResolvedModel) -> InferenceReply:
        arrived = self._clock()
        model, lease = await self._acquire(resolved, request)
        with lease:
            asked = resolve_task(request, model, self._plugins.output_dtypes, self._every_option)
            reply = await self._run(request, model, asked, arrived)
            reply = replace(reply, ignored_options=asked.ignored) if asked.ignored else reply
            return reply if self._catalog.config_epoch is None else replace(reply, config=model.config_key)

    async def _run(self, request: InferenceRequest, model: LoadedModel, asked: Asked, arrived: float) -> InferenceReply:
        if asked.lora is None:
            return await self._pipeline.answer(request, model, asked.task, asked.plan, arrived)
        with _deadline_first(request, self._clock):
            lora, lease = await model.loras.acquire(asked.lora, self._wait(request))
        with lease:
            return await self._pipeline.answer(request, model, replace(asked.task, lora=lora), asked.plan, arrived)


@contextmanager
def _deadline_first(request: AnyRequest, clock: Callable[[], float]) -> Iterator[None]:
    # `DEADLINE_EXCEEDED` for a request that is refused after its deadline: retrying is no help then.
    try:
        yield
    except InferenceError:
        if request.deadline is not None and clock() >= request.deadline:
            raise deadline_exceeded() from None
        raise
