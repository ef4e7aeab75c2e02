"""Runs the processes of rendered manifests as a kubelet does: by their probes, and again where they end."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import psutil

from sie_core.serving.listening import reserve
from tests.helm.engine import Document
from tests.helm.running.network import Network
from tests.helm.running.pods import HOST, Container, addresses, containers_of, pods_of

READY_S = 120.0
LOOK_S = 0.2


class Running:
    """A container's process, started again where it ends, and where its startup or liveness probe fails too often."""

    def __init__(self, container: Container, stopping: threading.Event) -> None:
        self.container, self.restarts, self.condemned = container, 0, 0
        """`condemned`: how many of the restarts a probe decided."""
        self.pace = 1.0
        """By how much faster liveness is asked for, and the grace ends, than the manifest says."""
        self.log = container.folder / f"{container.name.rpartition('/')[2]}.log"
        self._stopping = stopping
        self._start()
        self._watch = threading.Thread(target=self._watching, daemon=True)
        self._watch.start()

    def _start(self) -> None:
        bare = {name: os.environ[name] for name in ("PATH", "LANG", "OMP_WAIT_POLICY") if name in os.environ}
        home = {"HOME": str(self.container.folder), "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.container.command, env={**bare, **home, **self.container.env}, cwd=self.container.folder,
                stdout=log, stderr=log,
            )  # fmt: skip
        self.started, self._failures, self._asked = False, 0, time.monotonic()

    def _watching(self) -> None:
        while not self._stopping.wait(LOOK_S):
            if self.process.poll() is not None:
                self.restarts += 1
                self._start()
            elif self._is_condemned():
                self.end()
                self.condemned += 1

    def _is_condemned(self) -> bool:
        """Ask the probe whose turn it is, if it is time, and count; liveness has its turn after the first success."""
        name, pace = ("livenessProbe", self.pace) if self.started else ("startupProbe", 1)
        asked = self.container.spec[name]
        if time.monotonic() < self._asked + asked["periodSeconds"] / pace:
            return False
        self._asked = time.monotonic()
        if self.is_(name):
            self.started, self._failures = True, 0
        else:
            self._failures += 1
        return self._failures >= asked["failureThreshold"]

    def is_(self, probe: str) -> bool:
        """Whether a probe is green."""
        timeout, command = self.container.spec[probe]["timeoutSeconds"], self.container.command_of(probe)
        try:
            if command:
                return subprocess.run(command, timeout=timeout, capture_output=True).returncode == 0
            return httpx.get(self.container.probe(probe), timeout=timeout).is_success
        except (httpx.HTTPError, subprocess.TimeoutExpired):
            return False

    def end(self) -> int:
        """End it by SIGTERM, and after its pod's grace by SIGKILL; return its status. Nobody waits for `preStop`."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(self.container.grace_s / self.pace)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def unwatched(self) -> None:
        """Wait until nobody starts it again."""
        self._watch.join()


class Cluster:
    """The containers of an install, in a network of their own or in this machine's."""

    def __init__(self, found: list[Document], folder: Path, network: Network | None, held: ExitStack) -> None:
        self.documents, self.network = found, network
        self.pods = pods_of(found)
        for pod in self.pods:
            numbers = [port["containerPort"] for of in pod.spec["containers"] for port in of["ports"]]
            if network:
                pod.host, pod.within = network.join(pod.name, pod.labels)
                pod.ports = {port: port for port in numbers}
            else:
                pod.ports = {port: held.enter_context(reserve(HOST, 0))[1] for port in numbers}
        if network:
            network.apply(found, self.pods, folder)
        known = {} if network else addresses(found, self.pods)
        described = [each for pod in self.pods for each in containers_of(pod, found, known, folder / pod.name)]
        self._stopping = threading.Event()
        self.containers = {each.name: Running(each, self._stopping) for each in described}

    def of(self, component: str) -> list[Running]:
        """List the containers of a component."""
        return [each for each in self.containers.values() if each.container.component == component]

    def urls(self, component: str) -> list[str]:
        """List the URLs of a component's pods."""
        return [f"http://{each.container.host}:{each.container.ports['http']}" for each in self.of(component)]

    def connections(self) -> set[tuple[str, str, int]]:
        """Return who is connected to whom: component, component and container port of the other one.

        In a network of its own, since the start; in this machine's, now.
        """
        if self.network:
            return self.network.used()
        at = {(pod.host, number): (pod.component, port) for pod in self.pods for port, number in pod.ports.items()}
        found = set()
        for each in self.containers.values():
            try:
                process = psutil.Process(each.process.pid)
                held = [of.net_connections("tcp") for of in (process, *process.children(recursive=True))]
            except psutil.NoSuchProcess:
                continue
            for link in (link for links in held for link in links if link.status == psutil.CONN_ESTABLISHED):
                if link.raddr in at:
                    found.add((each.container.component, *at[link.raddr]))
        return found

    def wait_until_ready(self) -> None:
        """Wait until every container's readiness probe is green."""
        end = time.monotonic() + READY_S
        waiting = list(self.containers.values())
        while waiting := [each for each in waiting if not each.is_("readinessProbe")]:
            logs = "\n".join(f"== {each.container.name}\n{each.log.read_text()[-3000:]}" for each in waiting)
            assert time.monotonic() < end, logs
            time.sleep(LOOK_S)

    def end(self) -> dict[str, int]:
        """End workers, gateways, config services and brokers in this order; return their statuses."""
        self._stopping.set()
        for each in self.containers.values():
            each.unwatched()
        order = ("worker", "gateway", "config", "nats")
        return {each.container.name: each.end() for component in order for each in self.of(component)}


@contextmanager
def running(found: list[Document], folder: Path, network: Network | None) -> Iterator[Cluster]:
    """Run an install."""
    with ExitStack() as held:
        cluster = Cluster(found, folder, network, held)
        try:
            cluster.wait_until_ready()
            yield cluster
        finally:
            cluster.end()
