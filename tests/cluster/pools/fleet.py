"""Gateways' keepers of pools over a broker inside the process, and workers that only send heartbeats."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sie_cluster.fleet.health.workers import Workers
from sie_cluster.gateway.pools.keeping import PoolKeeper
from sie_cluster.messages.health import WorkerReport, encode_beat
from sie_cluster.queue.subjects import health_subject
from sie_fake.broker.queue import in_process_transports

from sie_core.contracts import QueueTransport


@dataclass
class Fleet:
    """Some keepers of one broker, with a clock that the test moves: what the broker counts is not moved by it."""

    keepers: list[PoolKeeper] = field(default_factory=list)
    workers: list[Workers] = field(default_factory=list)
    transports: list[QueueTransport] = field(default_factory=list)
    now: float = 0.0
    events: Counter[str] = field(default_factory=Counter)

    async def beat(self, worker: str, profile: str = "l4", *, resource_pool: str = "default", up: bool = True) -> None:
        """Have every keeper hear of a worker."""
        report = WorkerReport(
            worker, "_default", "default", resource_pool, profile=profile, gpu_count=1, up=up, beat_s=3000.0
        )
        await self.transports[0].send(health_subject(worker), encode_beat(report))
        async with asyncio.timeout(30):
            while any(each.reports().get(worker) != report for each in self.workers):  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.001)


@asynccontextmanager
async def fleet(name: str, keepers: int = 1, lease_s: float = 1200.0, ahead_s: float = 0.0) -> AsyncIterator[Fleet]:
    """Run keepers until the end of the block; the wall clock of each is `ahead_s` ahead of that of the one before."""
    (factory,), made = in_process_transports(), Fleet()
    for number in range(keepers):
        transport, workers = factory.create(f"memory://{name}", {}), Workers()
        await transport.open()
        await workers.hear(transport)

        def count(event: str, times: int) -> None:
            made.events[event] += times

        made.keepers.append(
            PoolKeeper(
                lambda opened=transport: opened, workers, lease_s, count, lambda: made.now,
                lambda number=number: time.time() + number * ahead_s,
            )
        )  # fmt: skip
        made.workers.append(workers)
        made.transports.append(transport)
    try:
        yield made
    finally:
        for transport in made.transports:
            await transport.close()
