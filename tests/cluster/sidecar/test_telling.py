"""Heartbeats: those of a worker reach gateways however many models it has, and those of enemies fill no memory."""

from __future__ import annotations

import asyncio

import pytest

from sie_core.cluster.messages.configs import ConfigState
from sie_core.cluster.messages.frames import decode, encode
from sie_core.cluster.sidecar.queue import gateways
from sie_core.cluster.sidecar.queue.gateways import Gateways
from sie_core.cluster.sidecar.queue.heartbeat import Heartbeat, WorkerState
from sie_core.cluster.subjects import EVERY_HEALTH
from sie_core.contracts import Message
from sie_core.defaults.in_process_queue import sie_queue_transports
from sie_core.settings import Settings

BOUND_S = 30.0


async def test_a_worker_with_more_models_than_a_message_holds_is_heard_of() -> None:
    (factory,) = sie_queue_transports()
    transport = factory.create("memory://telling", {})
    await transport.open()
    came: asyncio.Queue[Message] = asyncio.Queue()
    await transport.subscribe(EVERY_HEALTH, came.put_nowait)
    heartbeat = Heartbeat(
        transport, Settings(), "w1", lambda: WorkerState(True, bytes(transport.max_payload), 3, ConfigState(7, "hash"))
    )
    beating = asyncio.create_task(heartbeat.run())
    async with asyncio.timeout(BOUND_S):
        head, (status,) = decode((await came.get()).payload)
    beating.cancel()
    assert (head["worker"], head["up"], head["held"], bytes(status)) == ("w1", True, 3, b"")
    await transport.close()


async def test_inboxes_without_end_are_not_all_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateways, "MOST_KNOWN", 100)
    (factory,) = sie_queue_transports()
    silent: list[str] = []
    known = Gateways(factory.create("memory://telling", {}), Settings(), silent.append)
    for number in range(1000):
        known.heard(Message("s", encode({"inbox": f"_INBOX.gateway.{number}", "beat_s": 3600.0})))
        known.heard(Message("s", encode({"inbox": "_INBOX.gateway.own", "beat_s": 1.0})))
    assert len(known._known) == 100
    assert "_INBOX.gateway.own" in known._known
    assert not known.is_silent("_INBOX.gateway.5.1")
    assert silent == []
