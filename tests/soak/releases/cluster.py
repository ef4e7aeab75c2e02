"""A cluster whose programs are each of one of two releases: two gateways, two sidecars and two workers."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sie_core.serving.listening import reserve
from tests.cluster.placement.fleet import BOUND_S, Fleet
from tests.nats.conftest import Broker
from tests.soak.faults.clients import Clients
from tests.soak.faults.cluster import LATENCY_MS, healthy_workers, until

Role = Literal["gateway", "sidecar", "worker"]
Release = Literal["old", "new"]
ROLES: tuple[Role, ...] = ("gateway", "sidecar", "worker")
MODEL, DIMS, COUNT = "test/releases", 8, 2
PLUGINS = "fake,nats,cluster"
"""Those of the older release alone: others are this tree's."""


@dataclass
class Mixed:
    """All of it."""

    fleet: Fleet
    ports: list[int]
    old: Path
    """Is first on the path of the older release's programs."""
    running: dict[tuple[Role, int], subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.ports]

    def clients(self, number: int) -> Clients:
        """Make clients of both gateways."""
        return Clients(self.urls, number, model=MODEL, dims=DIMS)

    def start(self, role: Role, number: int, release: Release) -> None:
        """Start a program."""
        name = f"w{number}"
        own = {
            "SIE_PLUGINS": PLUGINS, "PYTHONPATH": str(self.old) if release == "old" else "",
            "SIE_WORKER_ID": name, "SIE_IPC_SOCKET_PATH": str(self.fleet.folder / f"{name}.sock"),
            "SIE_WORKER_METRICS_PORT": "0", "SIE_DEVICE": "fake", "SIE_PRELOAD_MODELS": MODEL,
        }  # fmt: skip
        port = self.ports[number] if role == "gateway" else 0
        command = (role,) if role == "sidecar" else (role, "--port", f"{port}")
        self.running[role, number] = self.fleet.run(f"{role}-{number}", *command, **own)

    def replace(self, role: Role, release: Release) -> None:
        """Have the programs of a role drain and end, and start those of a release, one after the other."""
        for number in range(COUNT):
            process = self.running[role, number]
            process.terminate()
            assert process.wait(BOUND_S) == 0
            self.start(role, number, release)
            self.whole()

    def whole(self) -> None:
        """Wait until both gateways hear of both workers."""
        until(lambda: all(healthy_workers(url) == COUNT for url in self.urls), "both workers at both gateways")


@contextmanager
def mixed(folder: Path, old: Path) -> Iterator[Mixed]:
    """Run it, all of the older release at first, until the end of the block."""
    broker = Broker(folder)
    with ExitStack() as files:
        ports = [files.enter_context(reserve("127.0.0.1", 0))[1] for _ in range(COUNT)]
        files.callback(broker.kill)
        broker.start()
        cluster = Mixed(Fleet(folder, broker), ports, old)
        cluster.fleet.write(MODEL, latency_ms=LATENCY_MS)
        try:
            for role in ROLES:
                for number in range(COUNT):
                    cluster.start(role, number, "old")
            cluster.whole()
            yield cluster
        finally:
            for process in cluster.running.values():
                process.kill()
                process.wait()
