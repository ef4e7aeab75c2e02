"""`python -m tests.bench.cluster.load.restarting`: all workers are restarted, one after the other, under 64 clients.

Prints the latencies of calls of the SDK, its retries included, in quiet times, while a worker of another pool is
restarted, which takes the same CPU and none of their work, and while one of theirs is. They take turns, so
that a slow drift of the machine weighs on all.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

from sie_sdk import SIEAsyncClient

from tests.cluster.placement.fleet import Fleet, fleet

MODEL, CLIENTS, WORKERS = "bench/restarted", 64, 4
PAUSE_S = 0.5
"""Between an answer and the client's next call: the two cores have room for programs that start."""
QUIET_S = 10.0
SPARE = "spare"
PARTS = ("quiet", "another pool's", "theirs")


@dataclass
class Calls:
    """What the clients saw."""

    part: str = ""
    """What goes on; empty before it counts."""
    took_ms: dict[str, list[float]] = field(default_factory=lambda: {part: [] for part in PARTS})
    failed: list[str] = field(default_factory=list)


async def ask(url: str, calls: Calls) -> None:
    """Call again and again until cancelled; note how long each call took, by what went on at its beginning."""
    async with SIEAsyncClient(url) as client:
        for number in range(sys.maxsize):
            began, part = time.monotonic(), calls.part
            try:
                await client.encode(MODEL, f"text {number}")
            except Exception as error:
                calls.failed.append(repr(error))
            if part:
                calls.took_ms[part].append(1000 * (time.monotonic() - began))
            await asyncio.sleep(random.uniform(0, 2 * PAUSE_S))


async def measure(running: Fleet) -> Calls:
    """Have clients call in quiet times and restarts, in turn."""
    calls = Calls()
    clients = [asyncio.create_task(ask(running.url, calls)) for _ in range(CLIENTS)]
    await asyncio.sleep(QUIET_S)
    for number in range(WORKERS):
        calls.part = "quiet"
        await asyncio.sleep(QUIET_S)
        calls.part = "another pool's"
        await asyncio.to_thread(restart, running, SPARE, SIE_POOL=SPARE)
        calls.part = "theirs"
        await asyncio.to_thread(restart, running, f"w{number}")
    calls.part = ""
    await asyncio.sleep(2 * PAUSE_S)
    for client in clients:
        client.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    return calls


def restart(running: Fleet, name: str, **variables: str) -> None:
    """Have a worker drain and end, and wait until it takes work again."""
    running.end(name, signal.SIGTERM)
    running.add(name, SIE_PRELOAD_MODELS=MODEL, **variables)


def show(calls: Calls) -> None:
    """Print the table, and the ratio."""
    print("| | calls | p50 ms | p95 ms | p99 ms | slowest ms |\n|---|---|---|---|---|---|")
    p95 = {}
    for part, took_ms in calls.took_ms.items():
        cut = quantiles(took_ms, n=100)
        p95[part] = cut[94]
        shown = " | ".join(f"{each:.1f}" for each in (cut[49], cut[94], cut[98], max(took_ms)))
        print(f"| {part} | {len(took_ms)} | {shown} |")
    over = ", ".join(f"{p95[PARTS[2]] / p95[part]:.2f} over {part}" for part in PARTS[:2])
    print(f"\np95 while theirs are restarted: {over}; calls that failed: {len(calls.failed)}")
    print(*sorted(set(calls.failed))[:3], sep="\n")


def main() -> None:
    """Run it."""
    with tempfile.TemporaryDirectory() as name, fleet(Path(name)) as running:
        running.write(MODEL)
        running.add(*(f"w{number}" for number in range(WORKERS)), SIE_PRELOAD_MODELS=MODEL)
        running.add(SPARE, SIE_PRELOAD_MODELS=MODEL, SIE_POOL=SPARE)
        show(asyncio.run(measure(running)))


if __name__ == "__main__":
    main()
