"""Answers and pictures larger than a message beside single texts: right, bounded, nobody cut off."""

from __future__ import annotations

import multiprocessing
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import quantiles
from typing import Any

import httpx
import msgpack
import numpy as np
import psutil
import uvloop
from sie_fake.outputs import vectors
from sie_sdk import wire

from tests.bench.clients.closed_loop import Round, drive
from tests.bench.cluster.running import MODEL, cluster
from tests.bench.processes.running import HOST

LARGE = "test/large"
MEDIA = "sie-fake/media"
CONFIG = """\
sie_id: test/large
package_backed: true
tasks: {{encode: {{multivector: {{dim: {dims}}}}}}}
max_sequence_length: 4096
profiles: {{default: {{adapter_path: fake, max_batch_tokens: 2048}}}}
"""
"""One of its answers is a batch: eight would hold the device, and what waits for it, for as long as 264 MB take."""
WORDS = 2048
AT_ONCE, ROUNDS = 8, 3
LEAST_SINGLES = 1000
"""As many are asked for alone, and beside: large answers go on until there are."""
LIMIT_S = 120.0
SINGLES, PAUSE_S = 4, 0.005
CUT_OFF = "the connection to the broker is reconnecting"
MSGPACK = {"Content-Type": "application/msgpack", "Accept": "application/msgpack", "Prefer": "wait=60"}


def measure(quick: bool) -> dict[str, Any]:
    """Ask for eight multi-vectors of 33 MB at once, and send a picture of 20 MB, by frames and by a store."""
    dims, picture = (512, 2_500_000) if quick else (4096, 20_000_000)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="sie-bench-") as scratch:
        configs = Path(scratch) / "models"
        configs.mkdir()
        (configs / "large.yaml").write_text(CONFIG.format(dims=dims))
        for way in ("frames", "store"):
            folder = Path(scratch) / way
            store = {"SIE_PAYLOAD_STORE_URL": str(folder / "payloads")} if way == "store" else {}
            variables = {"SIE_MODELS_DIR": str(configs), "SIE_LOG_LEVEL": "INFO", **store}
            with cluster(folder, 1, ",".join((MODEL, LARGE, MEDIA)), variables) as (port, processes):
                found[way] = _beside_singles(port, processes, dims, picture)
            logs = [file.read_text(errors="replace") for file in (folder / "files").glob("*.log")]
            found[way]["cut_off"] = sum(log.count(CUT_OFF) for log in logs)
            left = [file for file in (folder / "payloads").rglob("*") if file.is_file()]
            found[way]["left_in_store"] = len(left)
    return found


def _beside_singles(
    port: int, processes: Mapping[str, list[psutil.Process]], dims: int, picture: int
) -> dict[str, Any]:
    _large(port, dims, picture, 1)
    _singles(port, 200)
    alone = _singles(port, LEAST_SINGLES)
    with _peaks(processes) as peaks:
        context = multiprocessing.get_context("spawn")
        begun, enough, rounds = context.Event(), context.Event(), context.Value("i", 0)
        child = context.Process(target=_large_apart, args=(port, dims, picture, begun, enough, rounds))
        child.start()
        if not begun.wait(LIMIT_S):
            raise RuntimeError("the clients of large answers did not begin")
        beside: list[float] = []
        started = time.perf_counter()
        while child.is_alive():
            beside += _singles(port, 40)
            if len(beside) >= LEAST_SINGLES:
                enough.set()
        seconds = time.perf_counter() - started
        child.join()
    return {
        "alone_p95_ms": _p95(alone),
        "beside_p95_ms": _p95(beside),
        "singles": len(beside),
        "seconds": seconds,
        "large_mb_s": rounds.value * (AT_ONCE * WORDS * dims * 4 + picture) / 1e6 / seconds,
        "right": child.exitcode == 0,
        "peak_mb": peaks,
    }


def _p95(seconds: list[float]) -> float:
    return 1000 * quantiles(seconds, n=20)[-1]


def _singles(port: int, requests: int) -> list[float]:
    body: bytes = msgpack.packb({"items": [{"text": "one small text"}]})
    head = "".join(f"{name}: {value}\r\n" for name, value in MSGPACK.items())
    lines = f"POST /v1/encode/{MODEL} HTTP/1.1\r\nHost: {HOST}\r\n{head}Content-Length: {len(body)}\r\n\r\n"
    shared = Round([lines.encode() + body], requests, pause_s=PAUSE_S)
    seen = uvloop.run(drive(HOST, port, shared, SINGLES, LIMIT_S))
    if seen.lost or any(answer.status != 200 for answer in seen.answers):
        raise RuntimeError("a single text was not answered")
    return [answer.seconds for answer in seen.answers]


def _large_apart(port: int, dims: int, picture: int, begun: Event, enough: Event, rounds: Any) -> None:
    begun.set()
    while rounds.value < ROUNDS or not enough.is_set():
        _large(port, dims, picture, AT_ONCE)
        rounds.value += 1


def _large(port: int, dims: int, picture: int, at_once: int) -> None:
    """Ask for so many multi-vectors at once and send a picture; raises where an answer is wrong."""
    words = [f"word{place % 8}" for place in range(WORDS)]
    right = vectors.multivector(words, dims).tobytes()
    wrong: list[str] = []

    def multivector() -> None:
        body = wire.pack({"items": [{"text": " ".join(words)}], "params": {"output_types": ["multivector"]}})
        reply = httpx.post(f"http://{HOST}:{port}/v1/encode/{LARGE}", content=body, headers=MSGPACK, timeout=LIMIT_S)
        told: Any = wire.unpack(reply.content)
        if reply.status_code != 200 or np.asarray(told["items"][0]["multivector"]["values"]).tobytes() != right:
            wrong.append(f"{reply.status_code}: {reply.content[:200]!r}")

    def send_picture() -> None:
        body = wire.pack({"items": [{"images": [{"data": b"p" * picture}]}]})
        reply = httpx.post(f"http://{HOST}:{port}/v1/encode/{MEDIA}", content=body, headers=MSGPACK, timeout=LIMIT_S)
        if reply.status_code != 200:
            wrong.append(f"{reply.status_code}: {reply.content[:200]!r}")

    threads = [threading.Thread(target=each) for each in (*[multivector] * at_once, send_picture)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise RuntimeError("; ".join(wrong))


@contextmanager
def _peaks(processes: Mapping[str, list[psutil.Process]]) -> Iterator[dict[str, float]]:
    """Note by how many MB each process grows at most during the block."""
    before = {name: _rss(found) for name, found in processes.items()}
    peaks = dict.fromkeys(before, 0.0)
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            for name, found in processes.items():
                peaks[name] = max(peaks[name], _rss(found) - before[name])

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peaks
    finally:
        done.set()
        thread.join()


def _rss(processes: list[psutil.Process]) -> float:
    total: int = sum(process.memory_info().rss for process in processes)
    return total / 1e6
