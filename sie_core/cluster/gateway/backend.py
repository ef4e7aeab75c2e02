"""The backend of a gateway's API: requests go to the queue, and what workers answer comes back."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sie_sdk.wire import pack, unpack

from sie_core.catalog import Catalog
from sie_core.catalog.bundles.registry import Registry
from sie_core.catalog.info import describe
from sie_core.cluster.configs.follower import Follower
from sie_core.cluster.gateway.dispatcher import Dispatcher
from sie_core.cluster.gateway.facts.facts import facts_of, with_facts
from sie_core.cluster.gateway.facts.keeping import KnownFacts
from sie_core.cluster.gateway.flight import Flight
from sie_core.cluster.gateway.routing import NO_CATALOG, Router
from sie_core.cluster.gateway.slicing import Packed
from sie_core.cluster.gateway.workers import Worker, Workers
from sie_core.cluster.messages.requests import load_wait_row, pack_item, pack_shared
from sie_core.cluster.messages.work import WorkOperation
from sie_core.contracts import (
    DecodeRequest,
    Health,
    InferenceReply,
    InferenceRequest,
    ModelInfo,
    ResolvedModel,
    Timing,
    Token,
    TokenizeRequest,
    Usage,
    WorkerInfo,
)
from sie_core.logs import current_request
from sie_core.plugins import PluginSet


class QueueBackend:
    """Answers requests by workers behind a queue. Methods are called on one event loop.

    Args:
        dispatcher: Carries them.
        workers: Those that are heard of.
        plugins: What is installed here; workers may have more.
        router: Finds where requests go.
        timeout_s: How long a request may take.
        follower: Of the config service; None without one.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        workers: Workers,
        plugins: PluginSet,
        router: Router,
        timeout_s: float,
        follower: Follower | None = None,
    ) -> None:
        self._dispatcher, self._workers, self._plugins, self._timeout_s = dispatcher, workers, plugins, timeout_s
        self._router, self._follower = router, follower
        self.known_facts = KnownFacts(workers, lambda: router.known)
        """What workers found out about models; its owner has it `run`."""
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
        return self._follower.sources if self._follower else {}

    def config_workers(self) -> Sequence[Worker]:
        """List the workers that were heard of lately, with what they have of the configs."""
        return list(self._workers)

    def follow(self, registry: Registry) -> None:
        """Serve another snapshot from now on; requests under way keep where they go."""
        self._router.known = registry

    def note(self, problem: str | None) -> None:
        """Take why the catalog cannot be followed just now; None once it can again."""
        self._note = problem

    async def infer(self, request: InferenceRequest) -> InferenceReply:
        """Have workers answer a request."""
        to = self._router.route(request.model)
        arrived = time.monotonic()
        packed = Packed(
            to.model.id,
            request.operation,
            request.request_id,
            pack_shared(request),
            [pack_item(item) for item in request.items],
            b"" if request.query is None else pack_item(request.query),
            request.client,
            request.priority,
            to.pool,
            to.subject,
            to.config_epoch,
        )
        flight = await self._dispatcher.carry(packed, self._left_s(request.deadline), _trace())
        return _reply(flight, 1000 * (time.monotonic() - arrived))

    async def tokenize(self, request: TokenizeRequest) -> Sequence[Sequence[Token]]:
        """Have workers list the tokens of texts."""
        shared = {"special": request.special, "most": request.most}
        items = await self._ask(request, "tokenize", shared, request.texts)
        rows: list[Any] = [unpack(item) for item in items]
        return [[Token(*row) for row in each] for each in rows]

    async def decode(self, request: DecodeRequest) -> Sequence[str]:
        """Have workers write the texts of tokens."""
        ids = [list(each) for each in request.ids]
        items = await self._ask(request, "decode", {"special": request.special}, ids)
        return [str(unpack(item)) for item in items]

    def models(self) -> list[ModelInfo]:
        """List every served model, those first whose weights some worker has."""
        up = self._up()
        told = [self._describe(model, up) for model in self.catalog.models()]
        return sorted(told, key=lambda model: not model.available)

    def model(self, model: str) -> ModelInfo:
        """Describe one model."""
        return self._describe(self._router.registry.resolve(model).model, self._up())

    def accepts_token_ids(self, model: str) -> bool:
        """Whether the model's config takes token ids in place of text."""
        return self._router.registry.resolve(model).model.config.accept_token_ids

    def plugins(self) -> list[Mapping[str, Any]]:
        """Describe the plugins of this process."""
        return [report.as_dict() for report in self._plugins.reports_now()]

    def health(self) -> Health:
        """Say what is wrong. A gateway is ready once it has a catalog: with the broker away it answers by type."""
        known = self._router.known
        followed = self._follower and self._follower.note
        notes = [self._dispatcher.problem, self._note, followed, known and known.catalog.note]
        if self._dispatcher.problem is None and not any(worker.up for worker in self._workers):
            notes.append("no worker takes work")
        unready = None if known else followed or NO_CATALOG
        return Health(None, unready, tuple(note for note in notes if note))

    def workers(self) -> list[WorkerInfo]:
        """List the workers that were heard of lately."""
        return [
            WorkerInfo(
                worker.name,
                worker.up,
                worker.bundle,
                worker.held,
                [model.id for model in worker.models.values() if model.state == "loaded"],
            )
            for worker in self._workers
        ]

    def _up(self) -> Counter[str]:
        """Count the workers that take work, by their bundles."""
        return Counter(worker.bundle for worker in self._workers if worker.up)

    def _describe(self, resolved: ResolvedModel, up: Counter[str]) -> ModelInfo:
        info = self._workers.model(resolved.id)
        if info is None:
            info = describe(resolved, None, self._plugins.postprocessors, available=resolved.config.weightless)
        facts = self.known_facts.facts(resolved.config, resolved.id) if facts_of(info) is None else None
        info = info if facts is None else with_facts(info, facts)
        route = self._router.registry.routes.get(resolved.id)
        if self._follower is None or route is None:
            return info
        return replace(info, bundles=route.compatible, workers=up[route.bundle])

    def _left_s(self, deadline: float | None) -> float:
        return self._timeout_s if deadline is None else min(self._timeout_s, deadline - time.monotonic())

    async def _ask(
        self,
        request: TokenizeRequest | DecodeRequest,
        operation: WorkOperation,
        shared: Mapping[str, Any],
        values: Sequence[Any],
    ) -> list[bytes]:
        to = self._router.route(request.model)
        told = pack({**shared, "load_wait": load_wait_row(request.load_wait)})
        packed = Packed(
            to.model.id,
            operation,
            request.request_id,
            told,
            [pack(value) for value in values],
            pool=to.pool,
            subject=to.subject,
            config_epoch=to.config_epoch,
        )
        flight = await self._dispatcher.carry(packed, self._left_s(request.deadline), _trace())
        return _items(flight)


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
        truncated,
        last.lora,
        last.ignored_options,
    )


def _timing(of_worker: Timing, total_ms: float) -> Timing:
    """Tell the times of the slice that came last; what passed outside its worker is time in the queue."""
    outside_ms = max(0.0, total_ms - of_worker.total_ms)
    return Timing(
        total_ms,
        of_worker.queue_ms + outside_ms,
        of_worker.tokenization_ms,
        of_worker.inference_ms,
        of_worker.postprocessing_ms,
        outside_ms,
    )


def _trace() -> str | None:
    """Make the `traceparent` of what is done for the current request."""
    fields = current_request.get()
    if fields is None or fields.trace_id is None:
        return None
    return f"00-{fields.trace_id}-{random.getrandbits(64) or 1:016x}-01"
