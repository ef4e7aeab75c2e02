"""The server and the cluster that are measured."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import psutil

from tests.bench.processes.running import HOST, free_port

START_S = 180.0
MODEL = "sie-fake/embedder"
VARIABLES = {"SIE_LOG_LEVEL": "WARNING", "SIE_HF_FALLBACK": "false", "SIE_RUNNER": "priority"}


@contextmanager
def standalone(
    folder: Path, preload: str = MODEL, variables: Mapping[str, str] | None = None
) -> Iterator[tuple[int, psutil.Process]]:
    """Run `sie serve`; give its port and its process."""
    with _running(["serve", "--preload", preload], folder, "serve.log", variables) as found:
        yield found


@contextmanager
def cluster(
    folder: Path, workers: int, preload: str = MODEL, variables: Mapping[str, str] | None = None
) -> Iterator[tuple[int, dict[str, list[psutil.Process]]]]:
    """Run `sie cluster up`; give its port and its processes by what they are."""
    arguments = ["cluster", "up", "--workers", str(workers), "--folder", str(folder / "files"), "--preload", preload]
    with _running(arguments, folder, "cluster.log", variables or {}) as (port, root):
        found: dict[str, list[psutil.Process]] = {}
        for process in root.children(recursive=True):
            words = process.cmdline()
            name = next((word for word in ("gateway", "sidecar", "worker", "config") if word in words), "broker")
            found.setdefault(name, []).append(process)
        yield port, found


@contextmanager
def _running(
    arguments: Sequence[str], folder: Path, log: str, variables: Mapping[str, str] | None = None
) -> Iterator[tuple[int, psutil.Process]]:
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [str(Path(sys.executable).with_name("sie")), *arguments, "--host", HOST, "--port", str(port)]
    with (folder / log).open("wb") as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, **VARIABLES, **(variables or {})},
        )
    try:
        assert process.stdout is not None
        _await_ready(process.stdout, folder / log)
        yield port, psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(START_S)


def _await_ready(out: IO[bytes], log: Path) -> None:
    """Read the line that says that all is loaded; the line ends where the process does."""
    if b"SIE serves" not in out.readline():
        raise RuntimeError(log.read_text(errors="replace")[-3000:])
