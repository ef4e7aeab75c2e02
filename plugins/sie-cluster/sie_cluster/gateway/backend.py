"""The backend of a gateway's API: requests go to the queue, and what workers answer comes back."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sie_bundle.bundles.registry import Registry
from sie_sdk.wire import unpack

from sie_cluster.configs.follower import Follower
from sie_cluster.fleet.health.workers import Workers, comes_up
from sie_cluster.fleet.pools.changes import not_found
from sie_cluster.gateway.capacity.admission import Admission
from sie_cluster.gateway.capacity.provisioning import Provisioning
from sie_cluster.gateway.flights.dispatcher import Dispatcher
from sie_cluster.gateway.flights.flight import MOST_QUEUED, Flight
from sie_cluster.gateway.flights.slicing import Packed, pack_items
from sie_cluster.gateway.pools.keeping import PoolKeeper, is_leased
from sie_cluster.gateway.routing import ANY_WORKERS, NO_CATALOG, Destination, Router
from sie_cluster.gateway.sight.dialled import DialledWorkers
from sie_cluster.gateway.sight.heard import held_models, worker_info
from sie_cluster.messages.frames import size_of
from sie_cluster.messages.health import WorkerReport
from sie_cluster.messages.requests import pack_for_tokenizer, pack_shared, read_tokens
from sie_cluster.messages.work import MOST_ITEMS, WorkOperation
from sie_core.catalog import Catalog
from sie_core.catalog.info import describe
from sie_core.contracts import (
    DecodeRequest,
    FleetModel,
    Health,
    InferenceError,
    InferenceReply,
    InferenceRequest,
    LoadWait,
    ModelInfo,
    PoolSpec,
    ResolvedModel,
    Timing,
    Token,
    TokenizeRequest,
    Usage,
    WorkerInfo,
)
from sie_core.logs import current_request
from sie_core.plugins import PluginSet

MOST_TOLD = 16
"""Workers that a reply names."""
MOST_LORA = 256
"""Characters of the name of a LoRA adapter that decides where a request goes."""


class QueueBackend:
    """Answers requests by workers behind a queue. Methods are called on one event loop.

    Args:
        dispatcher: Carries them.
        workers: Those that are heard of.
        plugins: What is installed here; workers may have more.
        router: Finds where requests go.
        timeout_s: How long a request may take.
        follower: Of the config service; None without one.
        places: Requests in flight that the gateway admits.
        pools: The resource pools that requests may name; None: there are none.
        dialled: Shown in place of the workers that are heard of; None shows those.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        workers: Workers,
        plugins: PluginSet,
        router: Router,
        timeout_s: float,
        follower: Follower | None = None,
        places: int = 4096,
        pools: PoolKeeper | None = None,
        dialled: DialledWorkers | None = None,
    ) -> None:
        self._dispatcher, self._workers, self._plugins, self._timeout_s = dispatcher, workers, plugins, timeout_s
        self._router, self._follower, self._pools, self._dialled = router, follower, pools, dialled
        self.provisioning = Provisioning(lambda: dispatcher.connected_at)
        self.admission = Admission(places)
        self._note: str | None = None

    @property
    def catalog(self) -> Catalog:
        """The models that are served.

        Raises:
            InferenceError: `QUEUE_UNAVAILABLE`: the config service has not told yet.
        """
        return self._router.registry.catalog

    def config_registry(self) -> Registry:
        """Where every model is served.

        Raises:
            InferenceError: `QUEUE_UNAVAILABLE`: the config service has not told yet.
        """
        return self._router.registry

    def config_service_url(self) -> str | None:
        """Where configs are written; None without a config service."""
        return self._follower.url if self._follower else None

    def config_sources(self) -> Mapping[str, str]:
        """By model, `api` or `filesystem`."""
        return self._follower.state.sources if self._follower else {}

    def config_workers(self) -> Sequence[WorkerReport]:
        """List the workers that were heard of lately, with what they have of the configs."""
        return list(self._workers.reports().values())

    def follow(self, registry: Registry) -> None:
        """Serve another snapshot from now on; requests under way keep where they go."""
        self._router.known = registry

    def note(self, problem: str | None) -> None:
        """Take why the catalog cannot be followed just now; None once it can again."""
        self._note = problem

    async def infer(self, request: InferenceRequest) -> InferenceReply:
        """Have workers answer a request."""
        lora = lora_of(request)
        leased, spec = request.resource_pool, await self._spec(request.resource_pool)
        to = self._router.route(
            request.model, profile=request.machine_profile, resource_pool=leased, lora=lora, spec=spec
        )
        arrived = time.monotonic()
        await self._have_worker(to, request.load_wait, request.deadline)
        packed = Packed(
            to,
            request.operation,
            request.request_id,
            pack_shared(request),
            await pack_items(request.items),
            b"" if request.query is None else (await pack_items([request.query]))[0],
            request.client,
            request.priority,
        )
        try:
            flight = await self._carry(packed, request.deadline)
        finally:
            _trace_stage("workers", arrived, model=to.model.id)
        return _reply(flight, 1000 * (time.monotonic() - arrived))

    async def tokenize(self, request: TokenizeRequest) -> Sequence[Sequence[Token]]:
        """Have workers list the tokens of texts."""
        return [read_tokens(item) for item in await self._ask(request, "tokenize")]

    async def decode(self, request: DecodeRequest) -> Sequence[str]:
        """Have workers write the texts of tokens."""
        return [str(unpack(item)) for item in await self._ask(request, "decode")]

    def models(self) -> list[ModelInfo]:
        """List every served model, those first whose weights some worker has."""
        up = self._up()
        told = [self._describe(model, up) for model in self.catalog.models()]
        return sorted(told, key=lambda model: not model.available)

    def model(self, model: str) -> ModelInfo:
        """Describe one model."""
        return self._describe(self._router.registry.resolve(model).model, self._up())

    async def describe(self, model: str) -> ModelInfo:
        """Describe one model for a request that is being answered."""
        return self.model(model)

    def plugins(self) -> list[Mapping[str, Any]]:
        """Describe the plugins of this process."""
        return [report.as_dict() for report in self._plugins.reports_now()]

    def health(self) -> Health:
        """Say what is wrong. A gateway is ready once it has a catalog: with the broker away it answers by type."""
        known = self._router.known
        followed = self._follower and self._follower.state.note
        notes = [self._dispatcher.problem, self._dispatcher.note, self._note, followed, known and known.catalog.note]
        if self._dispatcher.problem is None and not any(worker.report.up for worker in self._workers):
            notes.append("no worker takes work")
        unready = None if known else followed or NO_CATALOG
        return Health(None, unready, tuple(note for note in notes if note))

    def workers(self) -> list[WorkerInfo]:
        """List the workers that were heard of lately, or those that are dialled."""
        if self._dialled is not None:
            return self._dialled.workers()
        return [worker_info(worker.report) for worker in self._workers]

    def held_models(self) -> list[FleetModel]:
        """List the models that some worker has, loads or failed to load."""
        if self._dialled is not None:
            return self._dialled.held_models()
        return held_models(worker.report for worker in self._workers)

    def configured_gpus(self) -> list[str]:
        """List the machine profiles that can be scaled up."""
        return self._router.configured_gpus

    async def _spec(self, pool: str | None) -> PoolSpec:
        """Return the spec of the resource pool that a request names, where it names one that was leased."""
        if pool is None or not is_leased(pool):
            return ANY_WORKERS
        if self._pools is None:
            raise not_found(pool, ())
        return (await self._pools.leased(pool)).spec

    def _up(self) -> Counter[str]:
        """Count the workers that take work, by their bundles."""
        return Counter(worker.report.bundle for worker in self._workers if worker.report.up)

    def _describe(self, resolved: ResolvedModel, up: Counter[str]) -> ModelInfo:
        info = self._workers.model(resolved.id)
        if info is None:
            info = describe(resolved, None, self._plugins.postprocessors, available=resolved.config.weightless)
        # A worker of an older release does not tell it.
        info = replace(info, accepts_token_ids=resolved.config.accept_token_ids)
        route = self._router.registry.routes.get(resolved.id)
        if self._follower is None or route is None:
            return info
        return replace(info, bundles=route.compatible, workers=up[route.bundle])

    def heard(self, before: WorkerReport | None, now: WorkerReport) -> None:
        """Take a heartbeat."""
        if comes_up(before, now):
            self._dispatcher.tell_again()
        self.provisioning.lanes.heard(now)

    async def _have_worker(self, to: Destination, wait: LoadWait, deadline: float | None) -> None:
        """Go on once a worker is there. With the broker away nobody is heard, and the broker is what is told of."""
        if not self.provisioning.lanes.is_served(to.lane) and self._dispatcher.problem is None:
            await self.provisioning.wait(to.lane, wait, self._left_s(deadline))

    async def _carry(self, packed: Packed, deadline: float | None) -> Flight:
        left_s, slices = self._left_s(deadline), -(-len(packed.items) // MOST_ITEMS)
        queued = min(slices, MOST_QUEUED)
        cost = size_of(packed.items) * queued / slices
        ticket, answered = self.admission.enter(packed.to.lane, packed.to.subject, cost, left_s), False
        try:
            flight = await self._dispatcher.carry(packed, left_s, _trace())
            answered = True
        except InferenceError as error:
            if error.code == "QUEUE_FULL":  # the broker's stream is full, or a worker's queue
                self.admission.refused[packed.to.lane.labels] += 1
            raise
        finally:
            self.admission.leave(ticket, answered=answered)
        return flight

    def _left_s(self, deadline: float | None) -> float:
        return self._timeout_s if deadline is None else min(self._timeout_s, deadline - time.monotonic())

    async def _ask(self, request: TokenizeRequest | DecodeRequest, operation: WorkOperation) -> list[bytes]:
        to = self._router.route(request.model)
        await self._have_worker(to, request.load_wait, request.deadline)
        packed = Packed(to, operation, request.request_id, *pack_for_tokenizer(request))
        flight = await self._carry(packed, request.deadline)
        return _items(flight)


def lora_of(request: InferenceRequest) -> str | None:
    """Return the LoRA adapter that a request asks for; None where that is no text, which the worker refuses."""
    lora = request.options.get("lora")
    return lora if isinstance(lora, str) and len(lora) <= MOST_LORA else None


def _items(flight: Flight) -> list[bytes]:
    return [item for part in flight.parts for item in part.items or ()]


def _reply(flight: Flight, total_ms: float) -> InferenceReply:
    """Put the results of the slices together."""
    first, *others = [part.result for part in flight.parts if part.result is not None]
    last, usage, truncated = flight.last, first.read_usage(), first.truncated
    assert last is not None
    for head in others:
        # A query that all slices share is counted once.
        own, query = head.read_usage(), head.read_query()
        tokens = usage.input_tokens + own.input_tokens - query.input_tokens
        usage = Usage(tokens, usage.images + own.images - query.images)
        truncated += head.truncated - head.query_truncated
    return InferenceReply(
        _items(flight),
        _timing(last.read_timing(), total_ms),
        usage,
        truncated=truncated,
        lora=last.lora,
        ignored_options=last.ignored_options,
        config=last.config,
        workers=tuple(dict.fromkeys(head.worker for head in (first, *others) if head.worker))[:MOST_TOLD],
        computed=tuple(dict.fromkeys(head.computed for head in (first, *others) if head.computed))[:MOST_TOLD],
    )


def _timing(of_worker: Timing, total_ms: float) -> Timing:
    """Tell the times of the slice that came last; what passed outside its worker is time in the queue."""
    outside_ms = max(0.0, total_ms - of_worker.total_ms)
    return Timing(
        total_ms,
        of_worker.queue_ms + outside_ms,
        of_worker.tokenization_ms,
        inference_ms=of_worker.inference_ms,
        postprocessing_ms=of_worker.postprocessing_ms,
        transit_ms=outside_ms,
    )


def _trace() -> str | None:
    """Make the `traceparent` of what is done for the current request."""
    fields = current_request.get()
    return None if fields is None else fields.traceparent


def _trace_stage(name: str, started: float, **facts: Any) -> None:
    """Record a stage of the current request, which ends now."""
    fields = current_request.get()
    if fields is not None and fields.trace is not None:
        fields.trace.stage(name, started, time.monotonic(), **facts)
