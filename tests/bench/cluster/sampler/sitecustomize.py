"""Read by every Python process that has this folder on its path: samples by which part of the program CPU is used.

SIGUSR1 begins, SIGUSR2 writes `{part: samples}` to the folder of `SIE_BENCH_SAMPLES`, by the process' id.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from types import FrameType

PARTS = {
    "plugins/sie-cluster/sie_cluster/messages": "messages",
    "sie_sdk/wire": "messages",
    "msgpack": "messages",
    "plugins/sie-cluster/sie_cluster/gateway": "gateway",
    "plugins/sie-cluster/sie_cluster/sidecar": "sidecar",
    "plugins/sie-cluster/sie_cluster/ipc": "frames on the socket",
    "sie_core/cluster": "cluster, other",
    "sie_nats": "broker's client",
    "/nats/": "broker's client",
    "sie_core/serving": "HTTP protocol",
    "uvicorn": "HTTP protocol",
    "sie_core/api": "routes",
    "starlette": "routes",
    "fastapi": "routes",
    "pydantic": "routes",
    "sie_core/catalog": "catalog",
    "prometheus_client": "metrics",
    "asyncio/runners": "event loop",
}
"""Of a path in the code, what it is part of; the first that fits, of the innermost frame that any fits."""
EVERY_S = 0.001
UNNAMED = "unnamed"

samples: Counter[str] = Counter()


def part_of(frame: FrameType | None) -> str:
    """Name the part of the program that a frame belongs to."""
    while frame is not None:
        path = frame.f_code.co_filename
        for piece, part in PARTS.items():
            if piece in path:
                return part
        frame = frame.f_back
    return UNNAMED


def _begin(number: int, frame: FrameType | None) -> None:
    samples.clear()
    signal.signal(signal.SIGPROF, lambda _, at: samples.update((part_of(at),)))
    signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)


def _write(number: int, frame: FrameType | None) -> None:
    signal.setitimer(signal.ITIMER_PROF, 0)
    whole = Path(os.environ["SIE_BENCH_SAMPLES"]) / f"{os.getpid()}.json"
    partial = whole.with_suffix(".part")
    partial.write_text(json.dumps(samples))
    partial.rename(whole)


if "SIE_BENCH_SAMPLES" in os.environ:
    signal.signal(signal.SIGUSR1, _begin)
    signal.signal(signal.SIGUSR2, _write)
