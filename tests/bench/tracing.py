"""What tracing costs: three servers of the fake family, tracing off, 1 % and all requests, take turns.

`python -m tests.bench.tracing` prints each one's requests a second and processor time a request beside those of the
first. Their spans go to a receiver of OTLP in a process of its own.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import psutil

from tests.bench.clients.closed_loop import Round, drive
from tests.conftest import Server, run_server
from tests.tracing.receiver import receiving

MODEL = "sie-fake/embedder"
CLIENTS, ROUNDS, ROUND_S, LIMIT_S = 64, 7, 4.0, 60.0
ALL = {"OTEL_TRACES_SAMPLER": "always_on"}
SOME = {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.01"}


def _receive(ends: Connection) -> None:
    with receiving() as receiver:
        ends.send(receiver.environment["OTEL_EXPORTER_OTLP_ENDPOINT"])
        ends.recv()


@contextmanager
def _receiver() -> Iterator[dict[str, str]]:
    """Run a receiver; give the variables of a server that sends there."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_receive, args=(there,))
    process.start()
    try:
        yield {"SIE_TRACING_ENABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": here.recv()}
    finally:
        here.send(None)
        process.join(LIMIT_S)


def _request() -> bytes:
    body = b'{"items": [{"text": "one short text of seven words"}]}'
    head = f"POST /v1/encode/{MODEL} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def measure(server: Server, seconds: float) -> tuple[float, float]:
    """Give the requests a second of a round, and the seconds of processor time of each."""
    process, at = psutil.Process(server.process.pid), urlsplit(server.url)
    assert at.hostname is not None
    assert at.port is not None
    before = sum(process.cpu_times()[:2])
    done = asyncio.run(drive(at.hostname, at.port, Round([_request()], 1, seconds), CLIENTS, LIMIT_S))
    assert not done.lost
    assert {answer.status for answer in done.answers} == {200}
    count = len(done.answers)
    return count / (done.ended - done.started), (sum(process.cpu_times()[:2]) - before) / count


def main() -> None:
    """Measure, and print the table."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sends = stack.enter_context(_receiver())
        kinds = {"off": {}, "1 %": sends | SOME, "100 %": sends | ALL}
        servers = {
            name: stack.enter_context(
                run_server(folder / str(number), {"SIE_PLUGINS": "fake", **variables}, ["--preload", MODEL])
            )
            for number, (name, variables) in enumerate(kinds.items())
        }
        for server in servers.values():
            measure(server, 1.0)
        rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in servers}
        for number in range(ROUNDS):
            for name, server in servers.items():
                rounds[name].append(measure(server, ROUND_S))
            print(f"round {number + 1} of {ROUNDS}", file=sys.stderr, flush=True)
    print("| tracing | requests/s | of off | processor time a request, µs | of off |\n|---|---|---|---|---|")
    for name, told in rounds.items():
        # Ratios within a round: the machine's drift cancels.
        speed, cost = zip(*told, strict=True)
        speeds = median(here / off for here, (off, _) in zip(speed, rounds["off"], strict=True))
        costs = median(here / off for here, (_, off) in zip(cost, rounds["off"], strict=True))
        print(f"| {name} | {median(speed):.0f} | {speeds:.3f} | {1e6 * median(cost):.0f} | {costs:.3f} |")


if __name__ == "__main__":
    main()
