"""`python -m tests.bench.cluster.load.floods`: what floods of others, or one bulk request, cost an honest client.

Prints the p95 of its calls beside each attack over that without, measured in turns, for workers on a CPU, where short
requests run between two parts of a long batch, and on an accelerator, where they wait for its end, or where it has a
stream of higher priority run beside it. Words as arguments have those rows alone whose names have each of them.

Runs sleep, so that workers that share two cores take no time from one another, as workers on machines of their own.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any

import httpx

from tests.bench.cluster.load.overload import BODY, MODEL, Seen, request
from tests.cluster.placement.fleet import Fleet, fleet
from tests.soak.faults.cluster import until

HONEST_MODEL, QUEUED, QUEUE_POOL = "sie-fake/dense", "bench/queued", "batch"
HONEST = request(HONEST_MODEL, json.dumps({"items": [{"text": "a short text"}]}))
SINGLE = request(MODEL, json.dumps({"items": [{"text": "word " * 400}]}))
BULK = request(MODEL, json.dumps({"items": [{"text": "a short text"}] * 16_384}))
TURNS, ROUND_S, REST_S, PAUSE_S, A_SECOND = 4, 6.0, 1.0, 0.02, 60.0
"""Floods are three times what both workers can take; of single texts half as much."""
DEVICES = {
    "on CPUs": {"SIE_DEVICE": "cpu"},
    # The emulated one has a CPU's speed, at which a full batch takes 1.7 s.
    "on accelerators, batches of 100 ms": {"SIE_DEVICE": "fake", "SIE_MAX_BATCH_MS": "100"},
    "on accelerators with a priority stream": {
        "SIE_DEVICE": "fake",
        "SIE_MAX_BATCH_MS": "100",
        "SIE_PRIORITY_STREAM": "true",
    },
}
CONFIG = f"""\
sie_id: {QUEUED}
package_backed: true
tasks: {{encode: {{dense: {{dim: 8}}}}}}
profiles:
  default:
    adapter_path: fake
    adapter_options: {{runtime: {{latency_ms: 20.0, latency_ms_per_cost: 0.1}}}}
"""
Attack = Callable[[str, Seen], Coroutine[Any, Any, None]]


async def flood(call: bytes, url: str, seen: Seen) -> None:
    """Send more calls than the workers that are meant can take, until cancelled; their clients leave then."""
    async with asyncio.TaskGroup() as calls:
        while True:
            calls.create_task(seen.ask(url, call))
            await asyncio.sleep(1 / A_SECOND)


async def bulk(url: str, seen: Seen) -> None:
    """Send requests of 16 384 items, one after the other, until cancelled."""
    while True:
        await seen.ask(url, BULK)


async def honest(url: str, seen: Seen) -> None:
    """Have the honest client ask for a round's time."""
    end = time.monotonic() + ROUND_S
    while time.monotonic() < end:
        await seen.ask(url, HONEST)
        await asyncio.sleep(PAUSE_S)


async def beside(url: str, attack: Attack) -> str:
    """Measure the honest client alone and beside an attack in turns, and tell how its calls compare.

    Raises:
        RuntimeError: All calls of the attack were refused: it was none of workers.
    """
    alone, attacked, attackers = Seen(), Seen(), Seen()
    for _ in range(TURNS):
        await honest(url, alone)
        running = asyncio.create_task(attack(url, attackers))
        await honest(url, attacked)
        running.cancel()
        await asyncio.wait([running])
        await asyncio.sleep(REST_S)  # what its clients left is removed
    if attackers.answers and attackers.refused() == len(attackers.answers):
        raise RuntimeError(f"all calls of the attack were refused: {attackers.answers[:3]}")
    (p50, p95), (p50_alone, p95_alone) = _percentiles(attacked), _percentiles(alone)
    told = f"p95 / alone {p95 / p95_alone:5.2f} ({p95_alone:.0f} → {p95:.0f} ms), p50 {p50_alone:.0f} → {p50:.0f} ms"
    return f"{told}, {attacked.refused()} refused"


def _percentiles(seen: Seen) -> tuple[float, float]:
    took = quantiles([1000 * seconds for said, seconds, _ in seen.answers if said == "200"], n=20)
    return took[9], took[-1]


def prepare(running: Fleet, device: Mapping[str, str]) -> None:
    """Run two workers that all share, one that is leased, and one of another queue pool."""
    (running.folder / "models/queued.yaml").write_text(CONFIG)
    running.add("leased", SIE_PRELOAD_MODELS=MODEL, **device)
    lease(running, {"name": "leased"})
    running.add("w1", "w2", SIE_PRELOAD_MODELS=f"{MODEL},{HONEST_MODEL}", **device)
    running.add("batch", SIE_POOL=QUEUE_POOL, SIE_PRELOAD_MODELS=QUEUED, **device)
    # A gateway without a config service sends to another queue what is asked for in a pool with workers of that.
    lease(running, {"name": QUEUE_POOL, "queue_pool": QUEUE_POOL})


def lease(running: Fleet, body: dict[str, str]) -> None:
    """Make a resource pool, and wait until its worker serves it alone."""
    httpx.post(f"{running.url}/v1/pools", json=body).raise_for_status()
    where = f"{running.url}/v1/pools/{body['name']}"
    until(lambda: httpx.get(where).json()["status"]["state"] == "active", f"the pool {body['name']}")


def in_pool(model: str, pool: str) -> bytes:
    """Write a call for the workers of a pool."""
    return request(model, BODY).replace(b"Connection:", f"X-SIE-Pool: {pool}\r\nConnection:".encode())


def measure(words: Sequence[str], where: str, device: Mapping[str, str]) -> None:
    """Print a row for each attack."""
    attacks: dict[str, Attack] = {
        "a flood of another model": partial(flood, request(MODEL, BODY)),
        "a flood of single texts": partial(flood, SINGLE),
        "a flood of a resource pool": partial(flood, in_pool(MODEL, "leased")),
        "a flood of a queue pool": partial(flood, in_pool(QUEUED, QUEUE_POOL)),
        "a bulk request": bulk,
    }
    chosen = {name: attack for name, attack in attacks.items() if all(word in f"{where}: {name}" for word in words)}
    if not chosen:
        return
    print(f"workers {where}", flush=True)
    with tempfile.TemporaryDirectory() as folder, fleet(Path(folder)) as running:
        prepare(running, device)
        asyncio.run(honest(running.url, Seen()))
        for name, attack in chosen.items():
            print(f"{name:<28} {asyncio.run(beside(running.url, attack))}", flush=True)


def main() -> None:
    """Run it."""
    for where, device in DEVICES.items():
        measure(sys.argv[1:], where, device)


if __name__ == "__main__":
    main()
