"""Learns facts of models from workers and from what gateways have kept at the broker, and keeps new ones there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from sie_bundle.bundles.registry import Registry

from sie_cluster.fleet.health.workers import Worker, Workers
from sie_cluster.gateway.facts.facts import Facts, decode_facts, encode_facts, facts_of, key_of
from sie_cluster.queue.subjects import FACTS
from sie_core.contracts import InferenceError, KeyValue, ModelConfig, QueueError, QueueTransport

LOOK_S = 5.0
"""Between two looks at workers and configs; decoding what a worker tells of a hundred models takes 2 ms."""

log = logging.getLogger(__name__)


class KnownFacts:
    """The facts of the models in force.

    Args:
        workers: Who is heard of.
        registry: Gives the registry in force; None before there is one.
    """

    def __init__(self, workers: Workers, registry: Callable[[], Registry | None]) -> None:
        self._workers, self._registry = workers, registry
        self._configs: dict[str, ModelConfig] = {}
        """Those whose kept facts were read."""
        self._facts: dict[str, dict[str, Facts]] = {}
        """By config, then by the id a model is listed under."""
        self._seen: dict[str, int] = {}

    def facts(self, config: ModelConfig, listed: str) -> Facts | None:
        """Return what is known of a model; None where that is no more than its config says."""
        return self._facts.get(config.id, {}).get(listed) if self._configs.get(config.id) is config else None

    async def run(self, transport: Callable[[], QueueTransport]) -> None:
        """Look again and again until cancelled; `transport` raises `InferenceError` before the broker is reached."""
        store, told = None, False
        while True:
            try:
                store = store or await transport().key_value(FACTS)
                await self.look(store)
                told = False
            except InferenceError as error:
                log.debug("facts of models wait for the broker: %s", error)
            except QueueError as error:
                store = None
                if not told:
                    log.warning("facts of models are neither read nor kept, and tried again: %s", error)
                told = True
            await asyncio.sleep(LOOK_S)

    async def look(self, store: KeyValue) -> None:
        """Read the kept facts of configs that are new or changed, and keep what workers tell beyond them.

        Raises:
            QueueError: The store is away.
        """
        registry = self._registry()
        if registry is None:
            return
        configs = registry.catalog.configs
        for gone in self._configs.keys() - configs.keys():
            del self._configs[gone]
            self._facts.pop(gone, None)
        for config in configs.values():
            if self._configs.get(config.id) is not config:
                entry = await store.get(key_of(config.id))
                self._facts[config.id] = {} if entry is None else decode_facts(entry.value, config)
                self._configs[config.id] = config
        workers = list(self._workers)
        here = {worker.report.worker for worker in workers}
        self._seen = {name: seen for name, seen in self._seen.items() if name in here}
        for worker in workers:
            told = worker.report.config_hash
            if told is not None and told == registry.config_hashes.get(worker.report.bundle):
                await self._learn(worker, registry, store)

    async def _learn(self, worker: Worker, registry: Registry, store: KeyValue) -> None:
        name = worker.report.worker
        if self._seen.get(name) == hash(worker.status):
            return
        changed: dict[str, ModelConfig] = {}
        for listed, info in worker.models.items():
            model, facts = registry.catalog.entries.get(listed), facts_of(info)
            if model is None or facts is None or self._configs.get(model.config.id) is not model.config:
                continue
            known = self._facts.setdefault(model.config.id, {})
            if known.get(listed) != facts:
                known[listed] = facts
                changed[model.config.id] = model.config
        for config in changed.values():
            await store.put(key_of(config.id), encode_facts(config, self._facts[config.id]))
        self._seen[name] = hash(worker.status)
