"""A server's life: started, waited for, stopped, every wait bounded."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.clients.formats import FORMATS, Vectors
from tests.bench.processes.environments import SCRATCH
from tests.bench.processes.footprint import Footprint
from tests.bench.processes.servers import MODEL, ServerSpec
from tests.bench.processes.threads import environment

HOST = "127.0.0.1"
START_S = 240.0
STOP_S = 30.0
POLL_S = 0.02


class ServerError(Exception):
    """A server did not start, or did not answer; the message holds the end of its log."""


@dataclass(slots=True)
class Server:
    """A server that answers."""

    spec: ServerSpec
    port: int
    footprint: Footprint
    stages_s: dict[str, float] = field(default_factory=dict)
    """Seconds from the start of the process to each point."""
    rss_bytes: int = 0
    """After the first vector."""

    def get(self, path: str, timeout_s: float = 5.0) -> tuple[int, bytes]:
        """Ask with GET."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=timeout_s)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def encode(self, texts: list[str], form: str | None = None, timeout_s: float = 600.0) -> Vectors:
        """Ask for vectors, in the server's first format unless another is named.

        Raises:
            ServerError: The answer is no 200.
        """
        chosen = FORMATS[form or self.spec.formats[0]]
        connection = http.client.HTTPConnection(HOST, self.port, timeout=timeout_s)
        try:
            headers = {"Content-Type": chosen.content_type, "Accept": chosen.content_type}
            connection.request("POST", chosen.path(MODEL), chosen.write(MODEL, texts), headers)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise ServerError(f"{self.spec.title} answered {answer.status}: {body[:500]!r}")
        return chosen.read(body)


@contextmanager
def serving(spec: ServerSpec, threads: int) -> Iterator[Server]:
    """Start a server in a process group of its own, wait for its first vector, and stop it at the end.

    Raises:
        ServerError: It ended, or was not ready, within `START_S` seconds.
    """
    port = free_port()
    log = SCRATCH / f"{spec.name}.log"
    SCRATCH.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    with log.open("wb") as out:
        process = subprocess.Popen(
            spec.command(port), cwd=spec.folder, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            env=environment(threads, **spec.variables), start_new_session=True,
        )  # fmt: skip
    try:
        server = Server(spec, port, Footprint(process.pid))
        _wait(server, process, started, log)
        yield server
    finally:
        _stop(process)


def free_port() -> int:
    """Find a port nobody listens on."""
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        port: int = taken.getsockname()[1]
        return port


def _wait(server: Server, process: subprocess.Popen[bytes], started: float, log: Path) -> None:
    for point, reached in (("listening", _listens), ("ready", _is_ready)):
        while not reached(server):
            if process.poll() is not None or time.perf_counter() - started > START_S:
                raise ServerError(f"{server.spec.title} is not {point}:\n{log.read_text(errors='replace')[-3000:]}")
            time.sleep(POLL_S)
        server.stages_s[point] = time.perf_counter() - started
    server.encode(["one text"])
    server.stages_s["first vector"] = time.perf_counter() - started
    server.rss_bytes = server.footprint.rss_bytes()


def _listens(server: Server) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, server.port)) == 0


def _is_ready(server: Server) -> bool:
    try:
        return server.get(server.spec.ready_path)[0] == 200
    except OSError:
        return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_S)
