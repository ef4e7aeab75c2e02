"""Heartbeats: those of a worker reach peers however many models it has, and those of enemies fill no memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

import pytest
from sie_cluster.fleet.health.workers import Workers
from sie_cluster.messages.frames import encode
from sie_cluster.messages.health import Beat, ModelReport, WorkerReport, decode_beat
from sie_cluster.messages.status import WorkerStatus, encode_status
from sie_cluster.queue.subjects import EVERY_HEALTH, HEALTH_WANTED
from sie_cluster.settings import ClusterSettings
from sie_cluster.sidecar.queue import gateways
from sie_cluster.sidecar.queue.gateways import Gateways
from sie_cluster.sidecar.queue.heartbeat import Heartbeat
from sie_fake.broker.queue import in_process_transports

from sie_core.contracts import Message, ModelInfo, QueueTransport

BOUND_S = 30.0
REPORT = WorkerReport("w1", "_default", "default", up=True, held=3, config_hash="hash", config_epoch=7, beat_s=3600.0)
LOADED = ModelInfo("org/a", ("text",), ("dense",), dims={"dense": 4}, state="loaded")


@dataclass
class Telling:
    """A heartbeat, and what is heard of it."""

    transport: QueueTransport
    heartbeat: Heartbeat
    came: asyncio.Queue[Message]
    report: WorkerReport
    status: bytes

    async def next(self) -> Beat:
        async with asyncio.timeout(BOUND_S):
            return decode_beat((await self.came.get()).payload)


@asynccontextmanager
async def telling(report: WorkerReport = REPORT, status: bytes = b"status") -> AsyncIterator[Telling]:
    (factory,) = in_process_transports()
    transport = factory.create("memory://telling", {})
    await transport.open()
    came: asyncio.Queue[Message] = asyncio.Queue()
    await transport.subscribe(EVERY_HEALTH, came.put_nowait)
    heartbeat = Heartbeat(transport, lambda: told.report, lambda: told.status)
    told = Telling(transport, heartbeat, came, report, status)
    beating = asyncio.create_task(heartbeat.run())
    try:
        yield told
    finally:
        beating.cancel()
        with suppress(asyncio.CancelledError):
            await beating
        await transport.close()


async def test_a_worker_with_more_models_than_a_message_holds_is_heard_of() -> None:
    async with telling() as told:
        assert await told.next() == Beat(REPORT, (await told_id(told)), b"status")
        told.status = bytes(told.transport.max_payload)
        told.report = replace(REPORT, up=False)
        told.heartbeat.soon()
        assert await told.next() == Beat(told.report, 0, None)


async def told_id(told: Telling) -> int:
    """The id of the status in force, which a peer asks for."""
    await told.transport.send(HEALTH_WANTED, b"w1")
    return (await told.next()).status_id


async def test_what_peers_go_by_is_told_at_once_and_the_status_only_where_it_is_new() -> None:
    changes = (
        {"saturated": True},
        {"models": {"org/a": ModelReport("loading")}},
        {"models": {"org/a": ModelReport("loaded")}},
        {"models": {"org/a": ModelReport("loaded", loras=("x",))}},
        {"pulled": frozenset({"sie.work.a"})},
        {"config_epoch": 8},
        {"up": False, "draining": True},
    )
    async with telling() as told:
        first = await told.next()
        assert first.status == b"status"
        for change in changes:
            told.report = replace(told.report, **change)
            told.heartbeat.soon()
            assert await told.next() == Beat(told.report, first.status_id, None)
        told.report, told.status = replace(told.report, up=True), b"another"
        told.heartbeat.soon()
        last = await told.next()
        assert (last.status, last.status_id == first.status_id) == (b"another", False)


async def test_a_peer_that_starts_hears_of_all_at_once_and_asks_for_the_statuses_it_lacks() -> None:
    status = encode_status(WorkerStatus(True, None, [LOADED]))
    async with telling(status=status) as told:
        await told.next()
        without, workers = Workers(), Workers()
        await without.hear(told.transport)
        assert (await told.next()).status is None
        assert without.reports() == {"w1": REPORT}
        await workers.hear(told.transport, statuses=True)
        assert (await told.next()).status is None
        assert (await told.next()).status == status
        assert workers.model("org/a") == LOADED
        told.report = replace(REPORT, saturated=True)
        told.heartbeat.soon()
        assert (await told.next()).status is None
        assert workers.model("org/a") == LOADED
        assert workers.reports() == {"w1": told.report}


async def test_inboxes_without_end_are_not_all_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateways, "MOST_KNOWN", 100)
    (factory,) = in_process_transports()
    silent: list[str] = []
    known = Gateways(factory.create("memory://telling", {}), ClusterSettings(), silent.append)
    for number in range(1000):
        known.heard(Message("s", encode({"inbox": f"_INBOX.gateway.{number}", "beat_s": 3600.0})))
        known.heard(Message("s", encode({"inbox": "_INBOX.gateway.own", "beat_s": 1.0})))
    assert len(known._known) == 100
    assert "_INBOX.gateway.own" in known._known
    assert not known.is_silent("_INBOX.gateway.5.1")
    assert silent == []
