"""The engine: an `InferenceBackend` over the models of a catalog on one device."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from sie_core.catalog import Catalog
from sie_core.concurrency.threads import on_thread
from sie_core.contracts import (
    DecodeRequest,
    Device,
    EngineStatus,
    Health,
    InferenceError,
    InferenceReply,
    InferenceRequest,
    ModelInfo,
    ResolvedModel,
    TokenizeRequest,
)
from sie_core.engine.metrics import EngineMetrics
from sie_core.engine.models.info import describe
from sie_core.engine.models.lease import Lease
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.models.record import Registry
from sie_core.engine.models.sightings import Sightings
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
from sie_core.plugins import PluginSet

log = logging.getLogger(__name__)

Words = TypeVar("Words", TokenizeRequest, DecodeRequest)
AnyRequest = InferenceRequest | TokenizeRequest | DecodeRequest
Answer = TypeVar("Answer")


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
    pressure: float
    """The share of the device in use from which models are evicted."""
    timeouts: Timeouts
    clock: Callable[[], float]


class Engine:
    """Loads models when they are first asked for and answers requests to them; `build_engine` makes one.

    Every method but the constructor is called on one event loop. `start` first, `close` last.

    Args:
        parts: What it is put together from.
        plugins: What the plugins registered.
        catalog: The models that are served.
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
        """Answer `request`; cancelling the call, or its deadline, drops its queued work.

        Raises:
            InferenceError: Every way a request can fail, with its code.
        """
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
        """List the tokens of texts, by the model's own tokenizer.

        Raises:
            InferenceError: As `infer`; `INVALID_INPUT` where the model's family shows no tokens.
        """
        return await self._by_tokenizer(request, self._pipeline.tokenize)

    async def decode(self, request: DecodeRequest) -> Sequence[str]:
        """Write the texts of tokens, by the model's own tokenizer.

        Raises:
            InferenceError: As `infer`; `INVALID_INPUT` where the model's family has no way back from tokens.
        """
        return await self._by_tokenizer(request, self._pipeline.decode)

    async def load(self, model: str) -> None:
        """Load a model now, whatever failed before; return when it is loaded.

        Raises:
            InferenceError: `MODEL_NOT_FOUND`, `MODEL_LOAD_FAILED`.
        """
        await self._lifecycle.load(self._catalog.resolve(model))

    async def unload(self, model: str) -> bool:
        """Unload a model once its requests are answered; False where it is in use all the while.

        Raises:
            InferenceError: `MODEL_NOT_FOUND`.
        """
        return await self._lifecycle.unload(self._catalog.resolve(model), self._timeouts.asked_unload_s)

    def models(self) -> list[ModelInfo]:
        """List every served model, those first whose weights are here."""
        self._sightings.refresh()
        listed = [self._describe(resolved) for resolved in self._catalog.models()]
        return sorted(listed, key=lambda model: not model.available)

    def model(self, model: str) -> ModelInfo:
        """Describe one model.

        Raises:
            InferenceError: `MODEL_NOT_FOUND`, naming near matches.
        """
        self._sightings.refresh()
        return self._describe(self._catalog.resolve(model))

    def accepts_token_ids(self, model: str) -> bool:
        """Whether the model's config takes token ids in place of text.

        Raises:
            InferenceError: `MODEL_NOT_FOUND`, naming near matches.
        """
        return self._catalog.resolve(model).config.accept_token_ids

    def plugins(self) -> list[Mapping[str, Any]]:
        """Describe every plugin, broken ones with their cause."""
        return [report.as_dict() for report in self._plugins.reports_now()]

    def health(self) -> Health:
        """Say what is wrong: with the device for liveness; also with preload and admission for readiness."""
        live = self._pipeline.problem() or self._residency.problem()
        policies = self._pipeline.device.health.policy_problem()
        ready = live or self._admission.closed_because or self._preload.problem or policies
        notes = [note for note in (self._note, self._catalog.note) if note]
        failing = [f"{model}: {problem}" for model, problem in self._failing().items()]
        return Health(live, ready, (*notes, *failing, *self._lifecycle.notes(), *self._pipeline.notes()))

    def status(self) -> EngineStatus:
        """Tell the state of the device, of every queue, model and load; waits for nothing."""
        return EngineStatus(
            device=self.device,
            memory=self._residency.measured,
            threshold=self._pressure,
            in_flight=self._admission.in_flight,
            queued=self._pipeline.device.queue.queued_by_model(),
            models=self._registry.status(),
            loads=self._residency.loads.status(),
            stages={**self._pipeline.stages(), "measure": self._residency.stage()},
        )

    def _adopt(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.metrics.config_problems.set(len(catalog.problems))

    def _describe(self, resolved: ResolvedModel) -> ModelInfo:
        record = self._registry.known(resolved.id)
        info = describe(resolved, record, self._plugins.postprocessors, self._sightings.of(resolved.id))
        failing = self._pipeline.device.health.model_problem(record.loaded) if record and record.loaded else None
        return info if failing is None else replace(info, notes={**info.notes, "failing": failing})

    def _failing(self) -> dict[str, str]:
        """Say of each loaded model that fails one request after the other that it does."""
        loaded = [record.loaded for record in self._registry if record.loaded is not None]
        return {model.id: problem for model in loaded if (problem := self._pipeline.device.health.model_problem(model))}

    async def _by_tokenizer(self, request: Words, ask: Callable[[Words, LoadedModel], Awaitable[Answer]]) -> Answer:
        resolved = self._catalog.resolve(request.model)
        with self._admission.admitted():
            model, lease = await self._acquire(resolved, request)
            with lease:
                return await ask(request, model)

    async def _acquire(self, resolved: ResolvedModel, request: AnyRequest) -> tuple[LoadedModel, Lease]:
        """Return the loaded model and a lease on it, after as much of a load as the request waits for."""
        with _deadline_first(request, self._clock):
            return await self._lifecycle.acquire(resolved, _wait_s(request, self._clock()))

    async def _answer(self, request: InferenceRequest, resolved: ResolvedModel) -> InferenceReply:
        arrived = self._clock()
        model, lease = await self._acquire(resolved, request)
        with lease:
            asked = resolve_task(request, model, self._plugins.output_dtypes, self._every_option)
            reply = await self._run(request, model, asked, arrived)
            return replace(reply, ignored_options=asked.ignored) if asked.ignored else reply

    async def _run(self, request: InferenceRequest, model: LoadedModel, asked: Asked, arrived: float) -> InferenceReply:
        if asked.lora is None:
            return await self._pipeline.answer(request, model, asked.task, asked.leaving, arrived)
        with _deadline_first(request, self._clock):
            lora, lease = await model.loras.acquire(asked.lora, _wait_s(request, self._clock()))
        with lease:
            return await self._pipeline.answer(request, model, replace(asked.task, lora=lora), asked.leaving, arrived)


def _wait_s(request: AnyRequest, now: float) -> float:
    # How long a request waits for a load.
    return request.load_wait_s if request.deadline is None else min(request.load_wait_s, request.deadline - now)


@contextmanager
def _deadline_first(request: AnyRequest, clock: Callable[[], float]) -> Iterator[None]:
    # `DEADLINE_EXCEEDED` for a request that is refused after its deadline: retrying is no help then.
    try:
        yield
    except InferenceError:
        if request.deadline is not None and clock() >= request.deadline:
            raise deadline_exceeded() from None
        raise
