"""One engine process, from its start to its end."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import orjson
import yaml

from sie_core.contracts import ModelLoadError, OutOfDeviceMemory
from sie_sglang.engine import guard
from sie_sglang.engine.launch import Launch

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
KEPT_LINES = 20
"""Bounds the lines of its log that an error quotes."""
KEPT_BYTES = 1 << 14
"""Bounds the end of its log that is kept."""
READ_BYTES = 1 << 16
"""What a pipe holds: smaller reads of a long log would keep the other threads of the server waiting."""
POLL_S = 0.2
TOLD_EVERY_S = 10.0
"""Seconds of a start between two lines of our log that quote the last one of its log."""
END_S = 30.0
"""Bounds the wait for the end of its processes: the kernel frees their device memory first."""
CONNECTIONS = 8
"""Bounds the batches that may be at the engine: the device thread launches at most two ahead."""
OUT_OF_MEMORY = ("out of memory", "OutOfMemoryError")
PORT_TAKEN = ("address already in use", "Address already in use")


class PortTakenError(ModelLoadError):
    """Another program took the engine's port before the engine did."""


class Child:
    """An engine that was started. It is not ready before `await_ready` returned."""

    def __init__(self, launch: Launch) -> None:
        """Start it on a free port, with a key of its own."""
        self._launch = launch
        self._folder = Path(tempfile.mkdtemp(prefix="sie-sglang-"))
        self._tail = b""
        key, port = secrets.token_urlsafe(32), free_port()
        config = self._folder / "key.yaml"  # the folder is this user's alone
        config.write_text(yaml.safe_dump({"api-key": key}), encoding="utf-8")
        command = [sys.executable, guard.__file__, *launch.command(HOST, port, config)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=launch.environment(),
            cwd=self._folder,
            start_new_session=True,
        )
        self._http = httpx.Client(
            base_url=f"http://{HOST}:{port}",
            headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
            limits=httpx.Limits(max_connections=CONNECTIONS),
            trust_env=False,
        )
        self._reader = threading.Thread(target=self._read, name=f"sglang log of {launch.model}", daemon=True)
        self._reader.start()

    def await_ready(self, timeout_s: float, unwanted: threading.Event) -> None:
        """Wait until it answers, or until it is unwanted.

        Raises:
            OutOfDeviceMemory: Its log says so.
            PortTakenError: Likewise.
            ModelLoadError: `TIMEOUT`: it is not ready in time. `UNKNOWN`: it ended; quotes the end of its log.
        """
        deadline, told = time.monotonic() + timeout_s, time.monotonic()
        while not unwanted.wait(POLL_S) and self._process.poll() is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise ModelLoadError(
                    "TIMEOUT", f"The engine of {self._launch.model} did not answer in {timeout_s:g} s."
                )
            if time.monotonic() - told >= TOLD_EVERY_S:
                told = time.monotonic()
                log.info("the engine of %s is starting: %s", self._launch.model, self._lines(1))
            try:
                if self._http.get("/health", timeout=left).status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                continue
        self.end()
        if self._said(OUT_OF_MEMORY):
            raise OutOfDeviceMemory
        failure = PortTakenError if self._said(PORT_TAKEN) else ModelLoadError
        raise failure("UNKNOWN", f"The engine of {self._launch.model} ended before it was ready: {self.last_words}")

    def _said(self, signs: Sequence[str]) -> bool:
        return any(sign.encode() in self._tail for sign in signs)

    def wait(self) -> None:
        """Wait until it ends."""
        self._process.wait()

    @property
    def last_words(self) -> str:
        """The last lines of its log."""
        return self._lines(KEPT_LINES)

    def _lines(self, most: int) -> str:
        lines = self._tail.decode("utf-8", "replace").splitlines()
        return " | ".join([line.rstrip() for line in lines if line.strip()][-most:]) or "it wrote nothing"

    def post(self, path: str, body: dict[str, Any], timeout_s: float) -> tuple[int, Any]:
        """Ask it; return status and decoded body, None for one that is no JSON.

        Raises:
            httpx.TransportError: It did not answer; `httpx.TimeoutException` for one that hangs.
        """
        # The timeout is of each read: an answer comes whole, so it bounds the wait for it.
        answer = self._http.post(path, content=orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY), timeout=timeout_s)
        try:
            return answer.status_code, orjson.loads(answer.content)
        except orjson.JSONDecodeError:
            return answer.status_code, None

    def end(self) -> None:
        """End every process of it, and wait until none is left. Threads may call it side by side, and again."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        # A guard that was killed leaves the processes of its group.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(END_S)
        if self._reader.is_alive():
            log.error("the engine of %s did not end within %g s", self._launch.model, END_S)
        self._http.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            while piece := os.read(output.fileno(), READ_BYTES):
                self._tail = (self._tail + piece)[-KEPT_BYTES:]
                if log.isEnabledFor(logging.DEBUG):
                    log.debug("%s: %s", self._launch.model, piece.decode("utf-8", "replace").rstrip())


def free_port() -> int:
    """Find a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
