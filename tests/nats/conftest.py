"""A real broker with JetStream, one for the tests of this folder, and brokers of their own for those that end one."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sie_nats.plugin import sie_queue_transports

from sie_core.contracts import QueueTransport
from sie_core.serving.listening import reserve

START_S = 60.0


class Broker:
    """A `nats-server` process; it can be killed, stopped and started again on its port and its files."""

    def __init__(self, folder: Path, config: str = "") -> None:
        self.folder = folder
        # Kept while the broker is down, too, until nobody refers to it.
        self._reserved = ExitStack()
        _, self.port = self._reserved.enter_context(reserve("127.0.0.1", 0))
        self.config = folder / "nats.conf"
        self.config.write_text(config)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        server = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or "nats-server"
        own = () if "store_dir" in self.config.read_text() else ("-js", "-sd", self.folder / "js")
        command = [server, "-c", self.config, "-p", f"{self.port}", "-a", "127.0.0.1", *own]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.02)
        raise AssertionError((self.folder / "log").read_text())

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        end = time.monotonic() + START_S
        # A thread that runs on another processor goes on for a moment, and may answer.
        while number == signal.SIGSTOP and not self._stands_still():
            assert time.monotonic() < end

    def _stands_still(self) -> bool:
        assert self.process is not None
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/stat")
        return all(task.read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)

    def kill(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait(START_S)
            self.process = None


def transport(url: str, **settings: str) -> QueueTransport:
    factory = sie_queue_transports()[0]
    return factory.create(url, settings)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("nats"))
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path)
    broker.start()
    yield broker
    broker.kill()
