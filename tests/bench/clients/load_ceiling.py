"""What the load generator reaches against a server that computes nothing."""

from __future__ import annotations

import subprocess
import sys

from tests.bench.clients.cells import drive
from tests.bench.clients.load import Job
from tests.bench.processes.environments import ROOT
from tests.bench.processes.running import HOST
from tests.bench.processes.servers import MODEL
from tests.bench.processes.threads import environment
from tests.bench.workload.texts import make_texts

REQUESTS = 20_000


def requests_a_second(body_bytes: int, clients: int = 64, requests: int = REQUESTS) -> float:
    """Measure single-text requests a second at answers of `body_bytes` bytes."""
    command = [sys.executable, "-m", "tests.bench.clients.responder", str(body_bytes)]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(1), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as responder:
        assert responder.stdin is not None
        assert responder.stdout is not None
        port = int(responder.stdout.readline())
        texts = make_texts("mixed")
        places = [[place % len(texts)] for place in range(requests)]
        report, _ = drive(Job(HOST, port, MODEL, "base64", clients, texts, places, requests, limit_s=120))
        responder.stdin.close()
        responder.wait(10)
    return len(report.latencies) / report.seconds
