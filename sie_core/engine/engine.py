"""The engine: an `InferenceBackend` over the models of a catalog on one device. It must not know HTTP."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from typing import Any, TypeVar

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
from sie_core.engine.device.attention import require_attention_backend
from sie_core.engine.device.selection import choose_device
from sie_core.engine.metrics import EngineMetrics
from sie_core.engine.models.info import describe
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.models.record import Slots
from sie_core.engine.models.sightings import Sightings
from sie_core.engine.pipeline.pipeline import Pipeline
from sie_core.engine.pipeline.tokenizer_pool import Tokens
from sie_core.engine.requests.admission import Admission
from sie_core.engine.requests.errors import deadline_exceeded
from sie_core.engine.requests.task import Asked, resolve_task
from sie_core.engine.residency.checked_manager import make_manager
from sie_core.engine.residency.estimates import Costs
from sie_core.engine.residency.keeper import MemoryKeeper
from sie_core.engine.residency.lifecycle import Lifecycle
from sie_core.engine.residency.loader import Loader
from sie_core.engine.residency.memory import MemoryGauge
from sie_core.engine.residency.placing import Placing
from sie_core.engine.residency.preload import Preload
from sie_core.engine.residency.rollout import Following
from sie_core.engine.residency.turns import Turns
from sie_core.engine.residency.unloading import Unloader
from sie_core.plugins import PluginSet
from sie_core.settings import Settings

log = logging.getLogger(__name__)

STALL_LIMIT_S = 60.0
"""A batch counts as hung beyond this and ten times its prediction."""
QUEUED_BATCHES = 64
"""How many full batches may be queued where `SIE_MAX_QUEUED_COST` says nothing."""
MOST_PREPROCESSORS = 4
MOST_IMAGE_WORKERS = 4
CLOSE_TIMEOUT_S = 5.0
UNLOAD_WAIT_S = 60.0
"""How long an unload waits until nobody uses the model."""

clock = time.monotonic

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
        stall_limit_s: Seconds beyond which a batch may count as hung.

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
        stall_limit_s: float = STALL_LIMIT_S,
    ) -> None:
        budget = cpu_budget()
        self._plugins = plugins
        self._every_option = frozenset(each.name for family in plugins.families.values() for each in family.options)
        self._note: str | None = None
        self.device = choose_device(settings.device, plugins.device_probes)
        require_attention_backend(settings.attention_backend, plugins.runners, self.device)
        self.metrics = EngineMetrics(detailed=settings.instrumentation)
        threads = settings.preprocessor_workers or min(MOST_PREPROCESSORS, budget.threads)
        image_threads = settings.image_workers or min(MOST_IMAGE_WORKERS, budget.threads)
        max_queued_cost = settings.max_queued_cost or QUEUED_BATCHES * settings.max_batch_cost
        self._adopt(catalog)
        self._sightings = Sightings(
            lambda: look(self._catalog.models(), weights.peeking(), plugins, self.device), self._remember_here
        )
        self._pipeline = Pipeline(self.device, threads, image_threads, max_queued_cost, self._make_way, stall_limit_s)
        self._slots = Slots(frozenset(map(listed_id, settings.pinned_models)))
        self._gauge = gauge = MemoryGauge(self.device, plugins.device_probes, settings.memory_limit_bytes)
        self._threshold = settings.memory_pressure_threshold_percent / 100
        unloader = Unloader(self._pipeline.device, gauge, self.metrics)
        self._keeper = self._make_keeper(settings, gauge, unloader)
        turns = Turns(self._keeper, self._pipeline.device.lose)
        loader = Loader(settings, plugins, weights, self.device, compute_threads(budget), self.metrics, turns)
        placing = Placing(
            loader,
            turns,
            self._keeper,
            Costs(self.device),
            lambda: (self._pipeline.device.activity(), unloader.given_back),
        )
        self._lifecycle = Lifecycle(self._slots, loader, placing, unloader, self._pipeline.device, self.metrics)
        self._following = Following(self._slots, self._lifecycle)
        self._preload = Preload(settings.preload_models, lambda: self._catalog, self._lifecycle)
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
        self._keeper.start()
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
        self._keeper.cancel()
        self._pipeline.stop("the engine is closing")
        joined = await on_thread("sie-close", lambda: self._pipeline.close(CLOSE_TIMEOUT_S))
        if not joined:
            log.error("threads still at work were left behind: %s", self._pipeline.device.problem() or "a CPU stage")
        self._following.close()
        await self._lifecycle.close()
        self._keeper.close()

    @property
    def catalog(self) -> Catalog:
        """The snapshot in force."""
        return self._catalog

    def follow(self, catalog: Catalog) -> None:
        """Serve another snapshot from now on; models that are loaded are brought in line beside their requests."""
        before = self._catalog
        self._adopt(catalog)
        self._preload.follow(self._following.follow(before, catalog))
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
        return await self._lifecycle.unload(self._catalog.resolve(model), UNLOAD_WAIT_S)

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
        live = self._pipeline.problem() or self._lifecycle.problem()
        policies = self._pipeline.device.policy_problem()
        ready = live or self._admission.closed_because or self._preload.problem or policies
        notes = [note for note in (self._note, self._catalog.note) if note]
        failing = [f"{model}: {problem}" for model, problem in self._failing().items()]
        return Health(live, ready, (*notes, *failing, *self._lifecycle.notes(), *self._pipeline.notes()))

    def device_status(self) -> DeviceStatus:
        """Measure the device, and what waits for it."""
        queued = self._pipeline.device.queued_by_model()
        return DeviceStatus(self.device, self._gauge.measure(), self._threshold, queued)

    def _adopt(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.metrics.config_problems.set(len(catalog.problems))

    def _remember_here(self, models: frozenset[str]) -> None:
        self._catalog = replace(self._catalog, here=models)

    def _describe(self, resolved: ResolvedModel) -> ModelInfo:
        slot = self._slots.known(resolved.id)
        info = describe(resolved, slot, self._plugins.postprocessors, self._sightings.of(resolved.id))
        failing = self._pipeline.device.failing(slot.loaded) if slot and slot.loaded else None
        return info if failing is None else replace(info, notes={**info.notes, "failing": failing})

    def _failing(self) -> dict[str, str]:
        """Say of each loaded model that fails one request after the other that it does."""
        loaded = [slot.loaded for slot in self._slots if slot.loaded is not None]
        return {model.id: problem for model in loaded if (problem := self._pipeline.device.failing(model))}

    async def _make_way(self, model: str) -> bool:
        return await self._keeper.free_up_for_run(model)

    def _make_keeper(self, settings: Settings, gauge: MemoryGauge, unloader: Unloader) -> MemoryKeeper:
        limits = MemoryLimits(settings.memory_pressure_threshold_percent / 100, settings.idle_evict_s)
        manager = make_manager(self._plugins, settings.memory_manager, limits)
        return MemoryKeeper(manager, gauge, self._slots, unloader, self.metrics)

    async def _by_tokenizer(self, request: Words, ask: Callable[[Words, LoadedModel], Awaitable[Answer]]) -> Answer:
        resolved = self._catalog.resolve(request.model)
        with self._admission.admitted():
            model = await self._hold(resolved, request)
            try:
                return await ask(request, model)
            finally:
                model.use.leave()

    async def _hold(self, resolved: ResolvedModel, request: AnyRequest) -> LoadedModel:
        """Return the loaded model, held, after as much of a load as the request waits for."""
        with _deadline_first(request):
            return await self._lifecycle.hold(resolved, _wait_s(request))

    async def _answer(self, request: InferenceRequest, resolved: ResolvedModel) -> InferenceReply:
        arrived = clock()
        model = await self._hold(resolved, request)
        try:
            asked = resolve_task(request, model, self._plugins.output_dtypes, self._every_option)
            reply = await self._run(request, model, asked, arrived)
            return replace(reply, ignored_options=asked.ignored) if asked.ignored else reply
        finally:
            model.use.leave()

    async def _run(self, request: InferenceRequest, model: LoadedModel, asked: Asked, arrived: float) -> InferenceReply:
        if asked.lora is None:
            return await self._pipeline.answer(request, model, asked.task, asked.leaving, arrived)
        async with AsyncExitStack() as held:
            with _deadline_first(request):
                loaded = await held.enter_async_context(model.loras.use(asked.lora, _wait_s(request)))
            task = replace(asked.task, lora=loaded)
            return await self._pipeline.answer(request, model, task, asked.leaving, arrived)


def _wait_s(request: AnyRequest) -> float:
    """Return how long a request waits for a load that is under way."""
    if request.deadline is None:
        return request.load_wait_s
    return min(request.load_wait_s, request.deadline - clock())


@contextmanager
def _deadline_first(request: AnyRequest) -> Iterator[None]:
    """Answer `DEADLINE_EXCEEDED` where a request was refused when its deadline had passed: retrying is no help then."""
    try:
        yield
    except InferenceError:
        if request.deadline is not None and clock() >= request.deadline:
            raise deadline_exceeded() from None
        raise
