"""The engine: an `InferenceBackend` over the models of a catalog on one device. It must not know HTTP."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from sie_core.batching.checked import make_policy
from sie_core.cache import WeightChain
from sie_core.catalog import Catalog, look
from sie_core.catalog.configs.snapshot import listed_id
from sie_core.concurrency.threads import on_thread
from sie_core.contracts import (
    DecodeRequest,
    DeviceStatus,
    Health,
    InferenceError,
    InferenceReply,
    InferenceRequest,
    MemoryLimits,
    ModelInfo,
    ResolvedModel,
    TokenizeRequest,
)
from sie_core.cpu_budget import compute_threads, cpu_budget
from sie_core.engine.device.selection import choose_device, require_attention_backend
from sie_core.engine.metrics import EngineMetrics
from sie_core.engine.models.info import describe
from sie_core.engine.models.lease import Lease
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.models.record import Registry
from sie_core.engine.models.sightings import Sightings
from sie_core.engine.pipeline.pipeline import Pipeline
from sie_core.engine.pipeline.tokenizer_pool import Tokens
from sie_core.engine.requests.admission import Admission
from sie_core.engine.requests.errors import deadline_exceeded
from sie_core.engine.requests.task import Asked, resolve_task
from sie_core.engine.residency.checked_manager import make_manager
from sie_core.engine.residency.lifecycle import Lifecycle
from sie_core.engine.residency.loader import Loader
from sie_core.engine.residency.memory import DeviceMemoryMeter, Estimates
from sie_core.engine.residency.preload import Preload
from sie_core.engine.residency.residency import Residency
from sie_core.engine.residency.residents import Unloader
from sie_core.engine.residency.rollout import Rollout
from sie_core.engine.timeouts import DEFAULT_TIMEOUTS, Timeouts
from sie_core.plugins import PluginSet
from sie_core.settings import Settings

log = logging.getLogger(__name__)

QUEUED_BATCHES = 64
"""How many full batches may be queued where `SIE_MAX_QUEUED_COST` says nothing."""
MOST_PREPROCESSORS = 4
MOST_IMAGE_WORKERS = 4

Words = TypeVar("Words", TokenizeRequest, DecodeRequest)
AnyRequest = InferenceRequest | TokenizeRequest | DecodeRequest
Answer = TypeVar("Answer")


class Engine:
    """Loads models when they are first asked for and answers requests to them.

    Every method but the constructor is called on one event loop. `start` first, `close` last.

    Args:
        settings: The settings in force.
        plugins: What the plugins registered.
        catalog: The models that are served.
        weights: Where their weights come from.
        timeouts: Every wait of the engine; tests shorten some.
        clock: Monotonic seconds.

    Raises:
        PluginError: No such device, batch policy or attention backend; names those there are.
    """

    def __init__(
        self,
        settings: Settings,
        plugins: PluginSet,
        catalog: Catalog,
        weights: WeightChain,
        *,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        budget = cpu_budget()
        self._plugins = plugins
        self._every_option = frozenset(each.name for family in plugins.families.values() for each in family.options)
        self._timeouts = timeouts
        self._clock = clock
        self._note: str | None = None
        probes = partial(plugins.faulty, "sie_device_probes")
        self.device = choose_device(settings.device, plugins.device_probes, probes)
        require_attention_backend(settings.attention_backend, plugins.runners, self.device)
        self.metrics = EngineMetrics(detailed=settings.instrumentation)
        threads = settings.preprocessor_workers or min(MOST_PREPROCESSORS, budget.threads)
        image_threads = settings.image_workers or min(MOST_IMAGE_WORKERS, budget.threads)
        max_queued_cost = settings.max_queued_cost or QUEUED_BATCHES * settings.max_batch_cost
        self._adopt(catalog)
        self._sightings = Sightings(
            lambda: look(self._catalog.models(), weights.peeking(), plugins, self.device), self._remember_here
        )
        self._pipeline = Pipeline(
            self.device, threads, image_threads, max_queued_cost, self._make_way, timeouts.stall_s
        )
        self._registry = Registry(frozenset(map(listed_id, settings.pinned_models)), clock)
        self._memory = memory = DeviceMemoryMeter(
            self.device, plugins.device_probes, settings.memory_limit_bytes, probes
        )
        queues = self._pipeline.device
        self._unloader = unloader = Unloader(queues, memory, self.metrics, timeouts)
        self._threshold = settings.memory_pressure_threshold_percent / 100
        limits = MemoryLimits(self._threshold, settings.idle_evict_s)
        manager = make_manager(plugins, settings.memory_manager, limits)
        self._residency = Residency(
            manager, memory, self._registry, unloader, self.metrics, queues.lose, timeouts, clock
        )
        plugins.batch_policy(settings.batch_policy)  # one that is not there stops the start, not the first load
        loader = Loader(
            settings,
            plugins,
            weights,
            self.device,
            compute_threads(budget),
            self.metrics,
            self._residency,
            partial(make_policy, plugins, settings.batch_policy),
            clock,
        )
        self._lifecycle = Lifecycle(
            self._registry, loader, self._residency, unloader, Estimates(self.device), queues, self.metrics, clock
        )
        self._rollout = Rollout(self._registry, self._lifecycle, clock)
        self._preload = Preload(settings.preload_models, lambda: self._catalog, self._lifecycle, clock)
        self._admission = Admission(settings.max_concurrent_requests)
        self.metrics.watch(
            lambda: self._admission.in_flight,
            self._pipeline.device.queued,
            lambda: len(self._failing()),
            lambda: len(self._lifecycle.notes()),
        )
        log.info(
            "device %s (%s), %d threads a CPU stage, %d for images, CPU budget %s",
            self.device,
            self.device.name,
            threads,
            image_threads,
            budget,
        )

    async def start(self) -> None:
        """Take requests from now on, and load what is to be preloaded; returns when each was tried once."""
        self._pipeline.start()
        self._admission.open()
        self._residency.start()
        self._sightings.again()
        await self._preload.run()
        await self._sightings.settled()

    async def drain(self, timeout_s: float) -> bool:
        """Take no new requests and wait for those in flight; False where some still are after `timeout_s`."""
        self._admission.close("the server is shutting down")
        return await self._admission.idle(timeout_s)

    async def close(self) -> None:
        """Stop everything: what is still in flight answers `QUEUE_UNAVAILABLE`, threads are joined, models freed."""
        self._admission.close("the engine is closed")
        self._preload.cancel()
        self._sightings.close()
        self._residency.stop()
        self._pipeline.stop("the engine is closing")
        joined = await on_thread("sie-close", lambda: self._pipeline.close(self._timeouts.close_s))
        if not joined:
            log.error("threads still at work were left behind: %s", self._pipeline.device.problem() or "a CPU stage")
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
        policies = self._pipeline.device.policy_problem()
        ready = live or self._admission.closed_because or self._preload.problem or policies
        notes = [note for note in (self._note, self._catalog.note) if note]
        failing = [f"{model}: {problem}" for model, problem in self._failing().items()]
        return Health(live, ready, (*notes, *failing, *self._lifecycle.notes(), *self._pipeline.notes()))

    def device_status(self) -> DeviceStatus:
        """Measure the device, and what waits for it."""
        queued = self._pipeline.device.queued_by_model()
        return DeviceStatus(self.device, self._memory.measure(), self._threshold, queued)

    def _adopt(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.metrics.config_problems.set(len(catalog.problems))

    def _remember_here(self, models: frozenset[str]) -> None:
        self._catalog = replace(self._catalog, here=models)

    def _describe(self, resolved: ResolvedModel) -> ModelInfo:
        record = self._registry.known(resolved.id)
        info = describe(resolved, record, self._plugins.postprocessors, self._sightings.of(resolved.id))
        failing = self._pipeline.device.failing(record.loaded) if record and record.loaded else None
        return info if failing is None else replace(info, notes={**info.notes, "failing": failing})

    def _failing(self) -> dict[str, str]:
        """Say of each loaded model that fails one request after the other that it does."""
        loaded = [record.loaded for record in self._registry if record.loaded is not None]
        return {model.id: problem for model in loaded if (problem := self._pipeline.device.failing(model))}

    async def _make_way(self, model: str) -> bool:
        return await self._residency.free_for_run(model)

    async def _by_tokenizer(self, request: Words, ask: Callable[[Words, LoadedModel], Awaitable[Answer]]) -> Answer:
        resolved = self._catalog.resolve(request.model)
        with self._admission.admitted():
            model, lease = await self._acquire(resolved, request)
            with lease:
                return await ask(request, model)

    async def _acquire(self, resolved: ResolvedModel, request: AnyRequest) -> tuple[LoadedModel, Lease]:
        """Return the loaded model and a lease on it, after as much of a load as the request waits for."""
        with self._deadline_first(request):
            return await self._lifecycle.acquire(resolved, self._wait_s(request))

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
        with self._deadline_first(request):
            lora, lease = await model.loras.acquire(asked.lora, self._wait_s(request))
        with lease:
            return await self._pipeline.answer(request, model, replace(asked.task, lora=lora), asked.leaving, arrived)

    def _wait_s(self, request: AnyRequest) -> float:
        """Return how long a request waits for a load."""
        if request.deadline is None:
            return request.load_wait_s
        return min(request.load_wait_s, request.deadline - self._clock())

    @contextmanager
    def _deadline_first(self, request: AnyRequest) -> Iterator[None]:
        """Answer `DEADLINE_EXCEEDED` to who was refused when its deadline had passed: retrying is no help then."""
        try:
            yield
        except InferenceError:
            if request.deadline is not None and self._clock() >= request.deadline:
                raise deadline_exceeded() from None
            raise
