"""`python -m tests.bench.cluster.load.floods`: what floods of others, or one bulk request, cost an honest client.

Prints the p95 of its calls beside each attack over that without, measured in turns, for workers on a CPU, where short
requests run between two parts of a long batch, and on an accelerator, where they wait for its end, or where it has a
stream of higher priority run beside it; and how many of its answers the attack gets of those it gets alone. Words as
arguments have those rows alone whose names have each of them.

Runs sleep, so that workers that share two cores take no time from one another, as workers on machines of their own.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any

import httpx

from tests.bench.cluster.load.overload import Seen, request
from tests.cluster.placement.fleet import Fleet, fleet
from tests.soak.faults.cluster import until

HONEST_MODEL, MODEL, QUEUED, QUEUE_POOL = "sie-fake/dense", "bench/flooded", "bench/queued", "batch"
HONEST = request(HONEST_MODEL, json.dumps({"items": [{"text": "a short text"}]}))
SINGLE = request(MODEL, json.dumps({"items": [{"text": "word " * 400}]}))
BULK = request(MODEL, json.dumps({"items": [{"text": "a short text"}] * 16_384}))
TURNS, ROUND_S, REST_S, PAUSE_S, A_SECOND = 4, 6.0, 1.0, 0.02, 60.0
ENOUGH = 100
"""Answers that make a rate."""


@dataclass(frozen=True, slots=True)
class Workers:
    """What runs the flooded models."""

    variables: Mapping[str, str]
    batch_ms: float
    """What every batch takes, whatever it holds."""
    token_ms: float
    texts: int
    """Of a request of a flood, a hundred words each: three times what both workers can take."""

    def config(self, model: str) -> str:
        """Write the config of a flooded model."""
        return CONFIG.format(model=model, batch_ms=self.batch_ms, token_ms=self.token_ms)

    @property
    def body(self) -> str:
        """A request of a flood."""
        return json.dumps({"items": [{"text": "word " * 100}] * self.texts})


DEVICES = {
    "on CPUs": Workers({"SIE_DEVICE": "cpu"}, 20.0, 0.1, 8),
    # As an encoder of 24 layers and 300 million parameters on a small GPU: a third of a second for a full batch.
    "on accelerators": Workers({"SIE_DEVICE": "fake"}, 3.0, 0.02, 48),
}
CONFIG = """\
sie_id: {model}
package_backed: true
tasks: {{encode: {{dense: {{dim: 8}}}}}}
profiles:
  default:
    adapter_path: fake
    adapter_options: {{runtime: {{latency_ms: {batch_ms}, latency_ms_per_cost: {token_ms}}}}}
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
    alone, attacked, attackers, unopposed = Seen(), Seen(), Seen(), Seen()
    for _ in range(TURNS):
        await honest(url, alone)
        async with during(attack(url, attackers)):
            await honest(url, attacked)
        async with during(attack(url, unopposed)):
            await asyncio.sleep(ROUND_S)
    if attackers.answers and attackers.refused() == len(attackers.answers):
        raise RuntimeError(f"all calls of the attack were refused: {attackers.answers[:3]}")
    (p50, p95), (p50_alone, p95_alone) = _percentiles(attacked), _percentiles(alone)
    told = f"p95 / alone {p95 / p95_alone:5.2f} ({p95_alone:.0f} → {p95:.0f} ms), p50 {p50_alone:.0f} → {p50:.0f} ms"
    told = f"{told}, {attacked.refused()} refused"
    if (answers := _answered(unopposed)) < ENOUGH:
        return told
    return f"{told}; of the attack's answers {_answered(attackers) / answers:.0%}"


@asynccontextmanager
async def during(attack: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Attack until the end of the block, and rest until what its clients left is removed."""
    running = asyncio.create_task(attack)
    yield
    running.cancel()
    await asyncio.wait([running])
    await asyncio.sleep(REST_S)


def _answered(seen: Seen) -> int:
    return len(seen.answers) - seen.refused()


def _percentiles(seen: Seen) -> tuple[float, float]:
    took = quantiles([1000 * seconds for said, seconds, _ in seen.answers if said == "200"], n=20)
    return took[9], took[-1]


def prepare(running: Fleet, workers: Workers) -> None:
    """Run two workers that all share, one that is leased, and one of another queue pool."""
    device = workers.variables
    for model in (MODEL, QUEUED):
        (running.folder / f"models/{model.replace('/', '-')}.yaml").write_text(workers.config(model))
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


def in_pool(model: str, body: str, pool: str) -> bytes:
    """Write a call for the workers of a pool."""
    return request(model, body).replace(b"Connection:", f"X-SIE-Pool: {pool}\r\nConnection:".encode())


def measure(words: Sequence[str], where: str, workers: Workers) -> None:
    """Print a row for each attack."""
    attacks: dict[str, Attack] = {
        "a flood of another model": partial(flood, request(MODEL, workers.body)),
        "a flood of single texts": partial(flood, SINGLE),
        "a flood of a resource pool": partial(flood, in_pool(MODEL, workers.body, "leased")),
        "a flood of a queue pool": partial(flood, in_pool(QUEUED, workers.body, QUEUE_POOL)),
        "a bulk request": bulk,
    }
    chosen = {name: attack for name, attack in attacks.items() if all(word in f"{where}: {name}" for word in words)}
    if not chosen:
        return
    print(f"workers {where}", flush=True)
    with tempfile.TemporaryDirectory() as folder, fleet(Path(folder)) as running:
        prepare(running, workers)
        asyncio.run(honest(running.url, Seen()))
        for name, attack in chosen.items():
            print(f"{name:<28} {asyncio.run(beside(running.url, attack))}", flush=True)


def main() -> None:
    """Run it."""
    for where, workers in DEVICES.items():
        measure(sys.argv[1:], where, workers)


if __name__ == "__main__":
    main()
