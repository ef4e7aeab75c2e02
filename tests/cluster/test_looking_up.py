"""Slices without an answer are looked up, whatever befalls one look."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from sie_cluster.gateway.flights.looking_up import LookUps

from sie_core.contracts import QueueTransport


async def test_a_look_that_fails_as_nobody_foresaw_is_not_the_last() -> None:
    again: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    part = SimpleNamespace(
        sequence=7, sent_at=0.0, looked_at=0.0, missed_at=None, result=None, head=SimpleNamespace(id="r.0.1")
    )
    packed = SimpleNamespace(to=SimpleNamespace(pool="_default", subject="sie.work._default.x"))
    flight = SimpleNamespace(reply="r", packed=packed, on_the_way=lambda: [part], try_again=again.set_result)
    looks = 0

    async def holds_work(queue: str, sequence: int, consumer: str) -> bool:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise ValueError("an answer that is no JSON")
        return False

    transport = cast("QueueTransport", SimpleNamespace(holds_work=holds_work))
    look_ups = LookUps(cast("Any", {"r": flight}), lambda: transport, cast("Any", None))
    look_ups.soon()
    running = asyncio.create_task(look_ups.run())
    async with asyncio.timeout(30):
        assert await again is part
    running.cancel()
