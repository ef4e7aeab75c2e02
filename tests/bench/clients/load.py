"""The load generator, a process of its own: reads a job from stdin, says when it starts and ends, writes what it saw.

`python -m tests.bench.clients.load`.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import uvloop

from tests.bench.clients.closed_loop import Answer, Round, drive
from tests.bench.clients.formats import FORMATS, Format, Vectors

KEPT_FAILURES = 3


@dataclass(frozen=True, slots=True)
class Job:
    """What to send. Request i asks for the texts at `requests[i]`; they are sent in turn, again and again."""

    host: str
    port: int
    model: str
    format: str
    clients: int
    texts: list[str]
    requests: list[list[int]]
    least: int
    """Requests to send at least."""
    least_s: float = 0.0
    """Seconds to go on for at least."""
    limit_s: float = 300.0
    warm_up: int = 8
    reference: str | None = None
    """A `.npy` file of the texts' float32 vectors; None checks nothing."""


@dataclass(slots=True)
class Report:
    """What was seen. Latencies in seconds, one a request answered with 200."""

    seconds: float
    latencies: list[float]
    indices: list[int]
    body_bytes: float
    failures: int
    failure_samples: list[str] = field(default_factory=list)
    checked: int = 0
    least_cosine: float | None = None
    largest_difference: float | None = None


def run(job: Job) -> Report:
    """Warm up, wait for the word, send everything, and check the answers once nothing is timed any more."""
    form = FORMATS[job.format]
    bodies = [form.request(job.host, job.model, [job.texts[i] for i in places]) for places in job.requests]
    warm = bodies[: job.warm_up]
    if warm:
        uvloop.run(_drive(job, Round(warm, len(warm)), min(job.clients, len(warm))))
    _say("warm")
    sys.stdin.readline()
    seen = uvloop.run(_drive(job, Round(bodies, job.least, job.least_s), job.clients))
    _say("ended")
    return report(job, form, seen)


async def _drive(job: Job, shared: Round, clients: int) -> Round:
    return await drive(job.host, job.port, shared, clients, job.limit_s)


def report(job: Job, form: Format, seen: Round) -> Report:
    """Sum up a round, vectors against the reference."""
    good = [answer for answer in seen.answers if answer.status == 200]
    bad = [answer for answer in seen.answers if answer.status != 200]
    result = Report(
        seconds=seen.ended - seen.started,
        latencies=[answer.seconds for answer in good],
        indices=[answer.index for answer in good],
        body_bytes=float(np.mean([len(answer.body) for answer in good])) if good else 0.0,
        failures=len(bad) + seen.lost,
        failure_samples=[f"{answer.status} {answer.body[:200]!r}" for answer in bad[:KEPT_FAILURES]],
    )
    if job.reference and good:
        check(result, job, form, good, np.load(Path(job.reference)))
    return result


def check(result: Report, job: Job, form: Format, answers: list[Answer], reference: Vectors) -> None:
    """Compare every vector of every answer with its text's own."""
    result.least_cosine, result.largest_difference = 1.0, 0.0
    for answer in answers:
        expected = reference[job.requests[answer.index]]
        vectors = form.read(answer.body)
        if vectors.shape != expected.shape:
            raise ValueError(f"{job.format}: an answer has shape {vectors.shape}, not {expected.shape}")
        result.checked += len(vectors)
        # Normalised here: a server that forgot to would otherwise pass on direction alone; the difference tells.
        norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
        cosine = float(((vectors * expected).sum(axis=1) / norms).min())
        result.least_cosine = min(result.least_cosine, cosine) if np.isfinite(cosine) else -1.0
        result.largest_difference = max(result.largest_difference, float(np.abs(vectors - expected).max()))


def _say(word: str) -> None:
    print(word, flush=True)


def main() -> None:
    job: dict[str, Any] = orjson.loads(sys.stdin.readline())
    print(orjson.dumps(asdict(run(Job(**job)))).decode(), flush=True)


if __name__ == "__main__":
    main()
