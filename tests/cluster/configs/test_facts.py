"""What a worker found out about a model is told by gateways that never heard of the worker, as long as it is true."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from sie_cluster.fleet.health.workers import Workers
from sie_cluster.gateway.facts.facts import decode_facts, encode_facts, facts_of, key_of
from sie_cluster.gateway.facts.keeping import KnownFacts
from sie_cluster.messages.health import WorkerReport, encode_beat
from sie_cluster.messages.status import WorkerStatus, encode_status
from sie_cluster.queue.subjects import FACTS, health_subject

from sie_core.contracts import KeyValue, Message, ModelInfo, QueueTransport
from tests.cluster.configs.registries import registry_of, text_of

TEXTS = {"org/a": text_of("org/a"), "org/b": text_of("org/b")}
LOADED = ModelInfo(
    "org/a",
    ("text",),
    ("dense",),
    dims={"dense": 384},
    state="loaded",
    max_sequence_length=512,
    operations=("encode", "score"),
)


@pytest.fixture
async def store(transport: QueueTransport) -> KeyValue:
    return await transport.key_value(FACTS)


def heard(workers: Workers, config_hash: str, *models: ModelInfo) -> None:
    """Have a worker of the first bundle tell of models."""
    report = WorkerReport("w1", "_default", "default", up=True, config_hash=config_hash, config_epoch=1)
    status = encode_status(WorkerStatus(True, None, models))
    workers.heard(Message(health_subject("w1"), encode_beat(report, 1, status)))


async def test_facts_of_a_loaded_model_are_known_to_a_gateway_that_starts_before_empty_pools(store: KeyValue) -> None:
    registry, workers = registry_of(TEXTS, 1), Workers()
    first = KnownFacts(workers, lambda: registry)
    heard(workers, registry.config_hashes["default"], LOADED, replace(LOADED, id="org/b", state="available"))
    await first.look(store)
    second = KnownFacts(Workers(), lambda: registry)
    await second.look(store)
    configs = registry.catalog.configs
    assert second.facts(configs["org/a"], "org/a") == facts_of(LOADED)
    assert second.facts(configs["org/b"], "org/b") is None


async def test_a_changed_config_has_no_facts_until_a_worker_with_it_tells_them(store: KeyValue) -> None:
    registry, workers = registry_of(TEXTS, 1), Workers()
    known = KnownFacts(workers, lambda: registry)
    heard(workers, registry.config_hashes["default"], LOADED)
    await known.look(store)
    registry = registry_of({**TEXTS, "org/a": text_of("org/a", hf_revision="main")}, 2)
    config = registry.catalog.configs["org/a"]
    await known.look(store)  # the worker still says that it has the config before
    assert known.facts(config, "org/a") is None
    heard(workers, registry.config_hashes["default"], replace(LOADED, dims={"dense": 768}))
    await known.look(store)
    facts = known.facts(config, "org/a")
    assert facts is not None
    assert facts["dims"] == {"dense": 768}


async def test_entries_that_are_none_or_another_s_are_passed_over(store: KeyValue) -> None:
    registry = registry_of(TEXTS, 1)
    config = registry.catalog.configs["org/a"]
    facts = facts_of(LOADED)
    assert facts is not None
    whole = encode_facts(config, {"org/a": facts})
    assert decode_facts(whole, config) == {"org/a": facts}
    assert decode_facts(whole, registry.catalog.configs["org/b"]) == {}
    for value in (b"", b"\xc1", b"\x90", encode_facts(config, {"org/a": {"dims": 1}})):
        await store.put(key_of("org/a"), value)
        known = KnownFacts(Workers(), lambda: registry)
        await known.look(store)
        assert known.facts(config, "org/a") is None


async def test_it_looks_by_itself(transport: QueueTransport) -> None:
    registry, workers = registry_of(TEXTS, 1), Workers()
    heard(workers, registry.config_hashes["default"], LOADED)
    known = KnownFacts(workers, lambda: registry)
    work = asyncio.create_task(known.run(lambda: transport))
    async with asyncio.timeout(30):
        while known.facts(registry.catalog.configs["org/a"], "org/a") is None:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
    work.cancel()
