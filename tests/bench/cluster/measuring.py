"""Asks the server and the cluster the same, in turns, and counts what each process of the cluster used meanwhile."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import msgpack
import psutil
import uvloop

from tests.bench.clients.closed_loop import Round, drive
from tests.bench.cluster.bare import round_trip_s
from tests.bench.cluster.profiling import profile, variables
from tests.bench.cluster.running import MODEL, cluster, standalone
from tests.bench.processes.running import HOST

SLEEPING = f"{MODEL}:slow"
CPU_OF = {"a request of 1 by 32 clients": (32, 1), "an item of 32 by 4 clients": (4, 32)}
LIMIT_S = 300.0
WARM_UP = 200
EACH = 4
"""Clients of a worker where each has the same load, however many there are."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is asked."""

    repeats: int
    quick: bool

    @property
    def requests(self) -> int:
        """Requests of one measurement."""
        return 300 if self.quick else 2000

    @property
    def workers(self) -> tuple[int, ...]:
        """Numbers of sleeping workers."""
        return (1, 2) if self.quick else (1, 2, 4, 8)


def measure(plan: Plan) -> dict[str, Any]:
    """Measure everything; times in milliseconds and microseconds."""
    found: dict[str, Any] = {"p50_ms": {"server": [], "cluster": [], "bare": []}, "cpu_us": {}, "sleeping_cpu_us": {}}
    found["same_load_cpu_us"] = {}
    with tempfile.TemporaryDirectory(prefix="sie-bench-") as scratch:
        folder = Path(scratch)
        with standalone(folder / "serve") as (server, _), cluster(folder / "one", 1) as (port, processes):
            for each in (server, port):
                _ask(each, MODEL, 1, 1, WARM_UP)
            for _ in range(plan.repeats):
                found["p50_ms"]["server"].append(_ask(server, MODEL, 1, 1, plan.requests).p50_ms)
                found["p50_ms"]["cluster"].append(_ask(port, MODEL, 1, 1, plan.requests).p50_ms)
                bare = asyncio.run(round_trip_s(folder / "one/files", plan.requests))
                found["p50_ms"]["bare"].append(1000 * bare)
            for name, (clients, items) in CPU_OF.items():
                found["cpu_us"][name] = _by_process(plan, port, processes, MODEL, clients, items)
        sampled = variables(folder / "samples")
        with cluster(folder / "sampled", 1, variables=sampled) as (port, processes):
            _ask(port, MODEL, 32, 1, WARM_UP)
            load = partial(_ask, port, MODEL, 32, 1, 4 * plan.requests)
            found["profile"] = profile(folder / "samples", processes, ("gateway", "sidecar"), load)
        for workers in plan.workers:
            with cluster(folder / f"sleeping{workers}", workers, SLEEPING) as (port, processes):
                used = _by_process(plan, port, processes, SLEEPING, 32, 32)
                found["sleeping_cpu_us"][str(workers)] = used
                used = _by_process(plan, port, processes, SLEEPING, EACH * workers, 32)
                found["same_load_cpu_us"][str(workers)] = used
    return found


@dataclass(frozen=True, slots=True)
class Asked:
    """What a round of requests took."""

    p50_ms: float
    requests_s: float


def _ask(port: int, model: str, clients: int, items: int, requests: int) -> Asked:
    bodies = [_request(model, number, items) for number in range(64)]
    seen = uvloop.run(drive(HOST, port, Round(bodies, requests), clients, LIMIT_S))
    bad = [answer for answer in seen.answers if answer.status != 200]
    if bad or seen.lost:
        raise RuntimeError(f"{len(bad)} of {len(seen.answers)} answers: {bad[0].body[:300]!r}" if bad else "lost")
    seconds = [answer.seconds for answer in seen.answers]
    return Asked(1000 * median(seconds), len(seconds) / (seen.ended - seen.started))


def _request(model: str, number: int, items: int) -> bytes:
    texts = [{"text": f"a small model behind a search, number {number} of {place}"} for place in range(items)]
    body: bytes = msgpack.packb({"items": texts})
    head = (
        f"POST /v1/encode/{model} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/msgpack\r\n"
        f"Accept: application/msgpack\r\nPrefer: wait=60\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _by_process(
    plan: Plan, port: int, processes: Mapping[str, list[psutil.Process]], model: str, clients: int, items: int
) -> dict[str, float]:
    """Return microseconds of CPU an item, by process, the median of the repeats; and requests a second."""
    _ask(port, model, clients, items, 2 * clients)
    rounds: list[dict[str, float]] = []
    requests = plan.requests if items == 1 else min(plan.requests // 4, 50 * clients)
    for _ in range(plan.repeats):
        before = cpu_s(processes)
        asked = _ask(port, model, clients, items, requests)
        used = {name: 1e6 * (now - before[name]) / (requests * items) for name, now in cpu_s(processes).items()}
        rounds.append({**used, "requests_s": asked.requests_s, "p50_ms": asked.p50_ms})
    return {name: median(each[name] for each in rounds) for name in rounds[0]}


def cpu_s(processes: Mapping[str, list[psutil.Process]]) -> dict[str, float]:
    """Give the seconds of CPU that each process has used so far."""
    return {name: sum(map(_cpu_s, found)) for name, found in processes.items()}


def _cpu_s(process: psutil.Process) -> float:
    """Sum up what the threads of a process used: to the nanosecond where the system tells, else in ticks of 10 ms.

    Threads that have ended are not counted by the former; those of a cluster stay.
    """
    threads = list(Path(f"/proc/{process.pid}/task").glob("*/schedstat"))
    if not threads:
        return sum(process.cpu_times()[:2])
    return sum(int(each.read_text().split()[0]) for each in threads) / 1e9
