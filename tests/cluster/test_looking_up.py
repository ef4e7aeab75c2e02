"""Slices without an answer are looked up, whatever befalls one look."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sie_cluster.gateway.flights import telling
from sie_cluster.gateway.flights.looking_up import LookUps
from sie_cluster.gateway.flights.telling import AGAIN_S, NEEDED_S, Telling
from sie_cluster.queue.subjects import consumer_name

from sie_core.contracts import QueueTransport


async def test_a_look_that_fails_as_nobody_foresaw_is_not_the_last() -> None:
    again: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    part = SimpleNamespace(
        sequence=7, sent_at=0.0, looked_at=0.0, missed_at=None, result=None, head=SimpleNamespace(id="r.0.1")
    )
    packed = SimpleNamespace(to=SimpleNamespace(pool="_default", subject="sie.work._default.x"))
    flight = SimpleNamespace(reply="r", packed=packed, on_the_way=lambda: [part], try_again=again.set_result)
    looks: list[str | None] = []

    async def holds_work(queue: str, sequence: int) -> bool:
        looks.append(None)
        if len(looks) == 1:
            raise ValueError("an answer that is no JSON")
        return False

    async def waits_for(queue: str, sequence: int, consumer: str) -> bool:
        looks.append(consumer)
        return False

    transport = cast("QueueTransport", SimpleNamespace(holds_work=holds_work, waits_for=waits_for))
    look_ups = LookUps(cast("Any", {"r": flight}), lambda: transport, cast("Any", None))
    look_ups.soon()
    running = asyncio.create_task(look_ups.run())
    async with asyncio.timeout(30):
        assert await again is part
    running.cancel()
    named = consumer_name("sie.work._default.x")
    assert looks == [None, named, None, None], "after a reconnection, and to be sure, the message itself is looked for"


async def test_what_was_told_is_told_again_after_a_while_and_remembered_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, sent = [0.0], list[bytes]()
    monkeypatch.setattr(telling, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def send(subject: str, payload: bytes) -> None:
        sent.append(payload)

    gateway = Telling(lambda: cast("QueueTransport", SimpleNamespace(send=send)), ("_default",), 5.0)
    for tell, told, pause_s in ((gateway.needed, gateway._told, NEEDED_S), (gateway.waits, gateway._waits, AGAIN_S)):
        sent.clear()
        for number in range(2_000):
            await tell("_default", f"{number}")
            await tell("_default", f"{number}")
        assert len(sent) == len(told) == 2_000
        now[0] += pause_s
        await tell("_default", "7")
        assert (sent[-1], list(told)) == (b"7", ["7"])
