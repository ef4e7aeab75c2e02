"""One cell against one server: the load process is started, warmed, timed and read."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict, dataclass

import numpy as np
import orjson

from tests.bench.clients.load import Job, Report
from tests.bench.processes.environments import ROOT
from tests.bench.processes.running import HOST, Server
from tests.bench.processes.servers import MODEL
from tests.bench.processes.threads import environment
from tests.bench.workload.reference import Reference
from tests.bench.workload.workloads import Cell

LIMIT_S = 900.0
LEAST_COSINE = 0.9995


class WrongAnswerError(Exception):
    """A server failed requests, or answered with other vectors than the reference's."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one cell gave once. Times in milliseconds unless named otherwise."""

    p50: float
    p99: float
    texts_s: float
    tokens_s: float
    requests_s: float
    cpu_s: float
    """CPU seconds of the server's processes while the cell ran."""
    seconds: float
    body_bytes: float
    """Of an answer, on average."""
    failures: int
    checked: int
    least_cosine: float
    largest_difference: float


def measure(server: Server, cell: Cell, expected: Reference, form: str | None = None) -> Measurement:
    """Run a cell.

    Raises:
        WrongAnswerError: Requests failed, or a vector is not its text's.
    """
    job = Job(
        HOST, server.port, MODEL, form or server.spec.formats[0], cell.clients, cell.texts, cell.requests,
        cell.least, cell.least_s, limit_s=LIMIT_S, reference=str(expected.file), warm_up=cell.warm_up,
    )  # fmt: skip
    report, cpu_s = drive(job, server)
    if report.failures:
        raise WrongAnswerError(f"{server.spec.title}, {cell.name}: {report.failures} failed: {report.failure_samples}")
    assert report.least_cosine is not None
    assert report.largest_difference is not None
    texts = [place for i in report.indices for place in cell.requests[i]]
    milliseconds = np.asarray(report.latencies) * 1000
    return Measurement(
        p50=float(np.percentile(milliseconds, 50)),
        p99=float(np.percentile(milliseconds, 99)),
        texts_s=len(texts) / report.seconds,
        tokens_s=float(expected.tokens[texts].sum()) / report.seconds,
        requests_s=len(report.latencies) / report.seconds,
        cpu_s=cpu_s,
        seconds=report.seconds,
        body_bytes=report.body_bytes,
        failures=report.failures,
        checked=report.checked,
        least_cosine=report.least_cosine,
        largest_difference=report.largest_difference,
    )


def drive(job: Job, server: Server | None = None) -> tuple[Report, float]:
    """Run a job in a load process; return its report and the CPU seconds the server used meanwhile."""
    load = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.clients.load"], cwd=ROOT, env=environment(1), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert load.stdin is not None
    assert load.stdout is not None
    try:
        _tell(load, orjson.dumps(asdict(job)))
        _expect(load, b"warm")
        before = server.footprint.cpu_seconds() if server else 0.0
        _tell(load, b"go")
        _expect(load, b"ended")
        used = server.footprint.cpu_seconds() - before if server else 0.0
        return Report(**orjson.loads(load.stdout.readline())), used
    finally:
        load.kill()
        load.wait()


def _tell(load: subprocess.Popen[bytes], line: bytes) -> None:
    assert load.stdin is not None
    load.stdin.write(line + b"\n")
    load.stdin.flush()


def _expect(load: subprocess.Popen[bytes], word: bytes) -> None:
    # The wait is bounded by the job's own limit, after which the load process ends and the line is empty.
    assert load.stdout is not None
    line = load.stdout.readline().strip()
    if line != word:
        raise WrongAnswerError(f"The load process ended without saying {word.decode()!r}; its error is above.")
