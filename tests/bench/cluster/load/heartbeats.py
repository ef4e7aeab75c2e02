"""`python -m tests.bench.cluster.load.heartbeats`: what the heartbeats of up to a thousand workers cost a gateway.

One process tells of all of them, as their sidecars would. Prints the gateway's CPU as a share of a core, less that of a
gateway without workers, which sends nothing, once a minute as Prometheus reads it, and under a few requests.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import psutil
from sie_cluster.messages.health import ModelReport, WorkerReport, encode_beat
from sie_cluster.messages.status import WorkerStatus, encode_status
from sie_cluster.queue.subjects import HEALTH_WANTED, health_subject, work_subject
from sie_nats.plugin import sie_queue_transports

from sie_core.contracts import ModelInfo
from tests.cluster.placement.fleet import Fleet, fleet
from tests.soak.faults.cluster import until

BEAT_S, MODELS, KEYS = 5.0, 4, 8
"""The default between two heartbeats; what each worker has loaded, and the keys that it pulls."""
NUMBERS = (0, 100, 1000)
BUNDLES = 4


def beat(number: int, status: bytes | None = None) -> tuple[str, bytes]:
    """Write the heartbeat of a worker."""
    name, bundle = f"worker-{number:04}", f"bundle-{number % BUNDLES}"
    models = {f"org/model-{number % 50}-{each}": ModelReport("loaded", 1 << 30, 12.5) for each in range(MODELS)}
    keys = frozenset(work_subject(f"org/model-{number % 50}-{each}", "_default", bundle) for each in range(KEYS))
    report = WorkerReport(
        name, "_default", bundle, profile=f"gpu-{number % 3}", gpu_type="l4", gpu_count=1, up=True, models=models,
        memory_used_bytes=1 << 33, memory_total_bytes=1 << 35, pulled=keys, held=int(time.time()) % 7, beat_s=BEAT_S,
    )  # fmt: skip
    return health_subject(name), encode_beat(report, 1, status)


async def tell(url: str, workers: int) -> None:
    """Be so many workers: a heartbeat of each in turn, and one with its status where a gateway asks for that."""
    transport = sie_queue_transports()[0].create(url, {})
    await transport.open()
    wanted: asyncio.Queue[int] = asyncio.Queue()

    def want(message: object) -> None:
        name = getattr(message, "payload", b"").decode()
        for number in [int(name.rpartition("-")[2])] if name else range(workers):
            wanted.put_nowait(number)

    await transport.subscribe(HEALTH_WANTED, want)
    infos = [
        ModelInfo(f"org/model-{each}", ("text",), ("dense",), dims={"dense": 384}, state="loaded")
        for each in range(MODELS)
    ]
    status, began, sent = encode_status(WorkerStatus(True, None, infos)), time.monotonic(), 0
    while True:
        while not wanted.empty():
            await transport.send(*beat(wanted.get_nowait(), status))
        while sent < (time.monotonic() - began) * workers / BEAT_S:
            await transport.send(*beat(sent % workers))
            sent += 1
        await asyncio.sleep(0.02)


def share(gateway: psutil.Process, seconds: float) -> float:
    """Return the part of a core that a process takes."""
    before, began = sum(gateway.cpu_times()[:2]), time.monotonic()
    time.sleep(seconds)
    return float(sum(gateway.cpu_times()[:2]) - before) / (time.monotonic() - began)


def heard(running: Fleet) -> int:
    """Count the workers that the gateway hears of."""
    return len(httpx.get(f"{running.url}/health", timeout=60).json()["workers"])


def measure(workers: int, seconds: float) -> tuple[float, float]:
    """Return the gateway's part of a core beside so many workers, and the seconds of CPU for one `/metrics`."""
    with tempfile.TemporaryDirectory() as name, fleet(Path(name)) as running:
        assert running.gateway is not None
        gateway = psutil.Process(running.gateway.process.pid)
        teller = subprocess.Popen([sys.executable, "-m", __spec__.name, "tell", running.broker.url, str(workers)])
        try:
            until(lambda: heard(running) == workers, "every worker")
            time.sleep(2)
            part, before = share(gateway, seconds), sum(gateway.cpu_times()[:2])
            for _ in range(LOOKS):
                httpx.get(f"{running.url}/metrics", timeout=60).raise_for_status()
            return part, (sum(gateway.cpu_times()[:2]) - before) / LOOKS
        finally:
            teller.kill()
            teller.wait()


LOOKS = 10


def main() -> None:
    """Run it."""
    if sys.argv[1:2] == ["tell"]:
        asyncio.run(tell(sys.argv[2], int(sys.argv[3])))
        return
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    print("| workers | heartbeats a second | % of a core | µs a heartbeat | ms for /metrics |\n|---|---|---|---|---|")
    alone = 0.0
    for workers in NUMBERS:
        part, metrics_s = measure(workers, seconds)
        alone, rate = part if not workers else alone, workers / BEAT_S
        each = f"{(part - alone) / rate * 1e6:.0f}" if rate else ""
        print(f"| {workers} | {rate:g} | {100 * part:.1f} | {each} | {1000 * metrics_s:.0f} |", flush=True)


if __name__ == "__main__":
    main()
