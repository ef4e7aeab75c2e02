"""Answers and pictures larger than a message beside single texts: right, bounded, nobody cut off."""

from __future__ import annotations

import http.client
import multiprocessing
import os
import resource
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import quantiles
from typing import Any

import msgpack
import numpy as np
import psutil
import uvloop
from numpy.typing import NDArray
from sie_fake.outputs import vectors
from sie_sdk import wire

from tests.bench.clients.closed_loop import Round, drive
from tests.bench.cluster.measuring import cpu_s
from tests.bench.cluster.running import MODEL, cluster, standalone
from tests.bench.processes.running import HOST

LARGE = "test/large"
MEDIA = "sie-fake/media"
PRELOADED = ",".join((MODEL, LARGE, MEDIA))
ALONE = "the server alone"
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
NICE = 10
"""Of the clients of large answers: the others of the bench are not to wait for them."""
CHUNK, START = 1 << 18, 1 << 12
"""Bytes of an answer that are read and compared at a time, and those by which the vectors are found in the first."""
SINGLES, PAUSE_S = 4, 0.005
CUT_OFF = "the connection to the broker is reconnecting"
MSGPACK = {"Content-Type": "application/msgpack", "Accept": "application/msgpack", "Prefer": "wait=60"}


def measure(quick: bool) -> dict[str, Any]:
    """Ask for eight multi-vectors of 33 MB at once, and send a picture of 20 MB, by frames and by a store.

    And the same of the server alone, which shares its machine's cores with the same clients.
    """
    dims, picture = (512, 2_500_000) if quick else (4096, 20_000_000)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="sie-bench-") as scratch:
        configs = Path(scratch) / "models"
        configs.mkdir()
        (configs / "large.yaml").write_text(CONFIG.format(dims=dims))
        alone = {"SIE_MODELS_DIR": str(configs)}
        with standalone(Path(scratch) / ALONE, PRELOADED, alone) as (port, server):
            found[ALONE] = {
                **_beside_singles(port, {"worker": [server]}, dims, picture),
                "cut_off": 0,
                "left_in_store": 0,
            }
        for way in ("frames", "store"):
            folder = Path(scratch) / way
            store = {"SIE_PAYLOAD_STORE_URL": str(folder / "payloads")} if way == "store" else {}
            variables = {"SIE_MODELS_DIR": str(configs), "SIE_LOG_LEVEL": "INFO", **store}
            with cluster(folder, 1, PRELOADED, variables) as (port, processes):
                found[way] = _beside_singles(port, processes, dims, picture)
            logs = [file.read_text(errors="replace") for file in (folder / "files").glob("*.log")]
            found[way]["cut_off"] = sum(log.count(CUT_OFF) for log in logs)
            left = [file for file in (folder / "payloads").rglob("*") if file.is_file()]
            found[way]["left_in_store"] = len(left)
    return found


def _beside_singles(
    port: int, processes: Mapping[str, list[psutil.Process]], dims: int, picture: int
) -> dict[str, Any]:
    with _peaks(processes) as peaks:
        _large(port, dims, picture, AT_ONCE)
        _singles(port, 200)
        alone = _singles(port, LEAST_SINGLES)
        context = multiprocessing.get_context("spawn")
        begun, enough, rounds = context.Event(), context.Event(), context.Value("i", 0)
        child = context.Process(target=_large_apart, args=(port, dims, picture, begun, enough, rounds))
        child.start()
        if not begun.wait(LIMIT_S):
            raise RuntimeError("the clients of large answers did not begin")
        beside: list[float] = []
        started, before = time.perf_counter(), _used(processes)
        while child.is_alive():
            beside += _singles(port, 40)
            if len(beside) >= LEAST_SINGLES:
                enough.set()
        seconds = time.perf_counter() - started
        child.join()
        used = {name: now - before[name] for name, now in _used(processes).items()}
    large_mb = rounds.value * (AT_ONCE * WORDS * dims * 4 + picture) / 1e6
    return {
        "alone_p95_ms": _p95(alone),
        "beside_p95_ms": _p95(beside),
        "singles": len(beside),
        "seconds": seconds,
        "large_mb_s": large_mb / seconds,
        "cpu_ms_mb": {name: 1000 * each / large_mb for name, each in used.items()},
        "right": child.exitcode == 0,
        "peak_mb": peaks,
    }


def _used(processes: Mapping[str, list[psutil.Process]]) -> dict[str, float]:
    """Give the seconds of CPU of each process so far, and of clients that have ended."""
    clients = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {**cpu_s(processes), "clients": clients.ru_utime + clients.ru_stime}


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
    os.nice(NICE)
    begun.set()
    while rounds.value < ROUNDS or not enough.is_set():
        _large(port, dims, picture, AT_ONCE)
        rounds.value += 1


def _large(port: int, dims: int, picture: int, at_once: int) -> None:
    """Ask for so many multi-vectors at once and send a picture; raises where an answer is wrong."""
    right = np.frombuffer(_right(dims), np.uint8)
    wrong: list[str] = []

    def ask(model: str, body: bytes, right: NDArray[np.uint8] | None) -> None:
        connection = http.client.HTTPConnection(HOST, port, timeout=LIMIT_S)
        try:
            connection.request("POST", f"/v1/encode/{model}", body, MSGPACK)
            reply = connection.getresponse()
            if reply.status != 200 or (right is not None and not _holds(reply, right)):
                wrong.append(f"{model}: {reply.status}: {reply.read(200)!r}")
        finally:
            connection.close()

    text = wire.pack({"items": [{"text": " ".join(_words())}], "params": {"output_types": ["multivector"]}})
    asked = [(LARGE, text, right)] * at_once + [(MEDIA, _picture(picture), None)]
    threads = [threading.Thread(target=ask, args=each) for each in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise RuntimeError("; ".join(wrong))


def _words() -> list[str]:
    return [f"word{place % 8}" for place in range(WORDS)]


@cache
def _right(dims: int) -> bytes:
    return vectors.multivector(_words(), dims).tobytes()


@cache
def _picture(size: int) -> bytes:
    return wire.pack({"items": [{"images": [{"data": b"p" * size}]}]})


def _holds(reply: http.client.HTTPResponse, right: NDArray[np.uint8]) -> bool:
    """Whether a reply holds these bytes; read a chunk at a time, which is cheap: these are the cluster's cores."""
    buffer, seen = bytearray(CHUNK), 0
    while (count := reply.readinto(buffer)) > 0:
        start = 0 if seen else max(0, buffer.find(right[:START].tobytes(), 0, count))
        came = np.frombuffer(buffer, np.uint8, count - start, start)[: len(right) - seen]
        if not np.array_equal(came, right[seen : seen + len(came)]):
            return False
        seen += len(came)
        del came  # the buffer is filled again
    return seen == len(right)


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
