"""The cluster that faults strike: two workers, two gateways, and a model that tells what ran."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
from sie_cluster.queue.subjects import dead_queue, work_queue
from sie_fake.record import read_journal
from sie_nats.plugin import sie_queue_transports

from tests.conftest import Server, run_cluster

MODEL, DIMS = "test/journal", 32
LATENCY_MS = 50.0
"""Of a run: clients that ask without a pause wait for it, and leave the cores to what starts."""
WORK, DEAD = work_queue("_default").name, dead_queue("_default").name
ENDING = "[exit]"
"""A text that contains it ends the worker that runs it."""
ROLES = ("sidecar", "worker", "broker", "gateway")
BOUND_S = 90.0
SHORT = {
    "SIE_ACK_WAIT_S": "1",
    "SIE_WORKER_PING_INTERVAL_MS": "300",
    "SIE_HEALTH_PUBLISH_INTERVAL_MS": "500",
}
"""Bounds that a stop of a few seconds is beyond."""
OCCUPYING = 16
"""Requests that occupy both workers while runs are held."""
PROCESSES = 7
"""Broker, config service, gateway, two workers and their sidecars."""


def until(holds: Callable[[], bool], what: str, bound_s: float = BOUND_S) -> None:
    """Wait until something holds.

    Raises:
        TimeoutError: It does not within the bound.
    """
    end = time.monotonic() + bound_s
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"never: {what}")
        time.sleep(0.05)


@dataclass
class Struck:
    """The cluster, and a second gateway beside it."""

    server: Server
    second: Server
    folder: Path

    @property
    def urls(self) -> tuple[str, str]:
        return self.server.url, self.second.url

    def processes(self) -> list[psutil.Process]:
        """List what the cluster runs."""
        return below(self.server)

    def find(self, role: str) -> psutil.Process:
        """Find the first process of a role."""
        return next(each for each in self.processes() if role_of(each) == role)

    def whole(self) -> bool:
        """Whether every process runs and both gateways hear of both workers."""
        return len(self.processes()) == PROCESSES and all(healthy_workers(url) == 2 for url in self.urls)

    def ran(self) -> Counter[str]:
        """Count how often each text ran."""
        return Counter(text for event in read_journal(self.folder / "journal") if event.kind == "run"
                       for text in event.texts)  # fmt: skip

    def runs(self) -> int:
        """Count the runs."""
        return sum(event.kind == "run" for event in read_journal(self.folder / "journal"))

    def metric(self, name: str) -> dict[str, float]:
        """Read a metric of each gateway, by its URL; one that does not answer is left out."""
        found = {}
        for url in self.urls:
            try:
                text = httpx.get(f"{url}/metrics", timeout=30).text
            except httpx.TransportError:
                continue
            match = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
            found[url] = float(match[1]) if match else 0.0
        return found

    def backlog(self, queue: str = WORK) -> int:
        """Count the messages in a queue, those at work included."""
        url, login = broker_of(self.folder)

        async def count() -> int:
            transport = sie_queue_transports()[0].create(url, login)
            await transport.open()
            try:
                return sum((await transport.backlog(queue)).values())
            finally:
                await transport.close()

        return asyncio.run(count())

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have every run wait within the block, and both workers at one each."""
        before = self.runs()
        hold = self.folder / "hold"
        hold.touch()
        first = [threading.Thread(target=self._occupy, args=(number,)) for number in range(OCCUPYING)]
        try:
            for thread in first:
                thread.start()
            until(lambda: self.runs() >= before + 2, "a run at each worker")
            yield
        finally:
            hold.unlink()
            for thread in first:
                thread.join(BOUND_S)

    def _occupy(self, number: int) -> None:
        httpx.post(
            f"{self.server.url}/v1/encode/{MODEL}", json={"items": [{"text": f"occupies {number}"}]}, timeout=BOUND_S
        )


def broker_of(folder: Path) -> tuple[str, dict[str, str]]:
    """Return the broker's URL, and the settings that a gateway logs in with."""
    config = json.loads((folder / "cluster/nats.conf").read_text())
    (user,) = [each for each in config["authorization"]["users"] if each["user"] == "gateway"]
    return f"nats://{config['host']}:{config['port']}", {"user": user["user"], "password": user["password"]}


def below(server: Server) -> list[psutil.Process]:
    """List the processes that a command has started, and those that they have."""
    return psutil.Process(server.process.pid).children(recursive=True)


def role_of(process: psutil.Process) -> str:
    """Name what a process of the cluster is."""
    words = process.cmdline()
    return next((word for word in ("gateway", "sidecar", "worker", "config") if word in words), "broker")


def healthy_workers(url: str) -> int:
    """Count the workers that a gateway hears of and that take work."""
    try:
        workers = httpx.get(f"{url}/health", timeout=30).json()["workers"]
    except httpx.TransportError:
        return 0
    return sum(worker["healthy"] for worker in workers)


def journalled(folder: Path) -> None:
    """Write the model that notes in `folder / "journal"` what runs, and waits while there is `folder / "hold"`."""
    models = folder / "models"
    models.mkdir(parents=True)
    (models / "journal.yaml").write_text(
        f"sie_id: {MODEL}\npackage_backed: true\ntasks: {{encode: {{dense: {{dim: {DIMS}}}}}}}\n"
        "profiles:\n  default:\n    adapter_path: fake\n    adapter_options:\n"
        f"      runtime: {{latency_ms: {LATENCY_MS}}}\n"
        f"      loadtime: {{journal: {folder}/journal, run_hold: {folder}/hold, exit_text: '{ENDING}'}}\n"
    )


@contextmanager
def struck(folder: Path, variables: Mapping[str, str] = SHORT) -> Iterator[Struck]:
    """Run the cluster until the end of the block.

    Args:
        folder: Where everything goes.
        variables: Settings of every process.
    """
    journalled(folder)
    with whole_cluster(folder, MODEL, variables) as cluster:
        yield cluster


@contextmanager
def whole_cluster(folder: Path, model: str, variables: Mapping[str, str] = SHORT) -> Iterator[Struck]:
    """Run two workers that have a model, and two gateways, until the end of the block."""
    arguments = ("--workers", "2", "--preload", model)
    with run_cluster(folder, *arguments, env=variables) as server, another_gateway(folder, variables) as second:
        cluster = Struck(server, second, folder)
        until(cluster.whole, "two workers at both gateways")
        yield cluster


@contextmanager
def another_gateway(folder: Path, variables: Mapping[str, str] = SHORT) -> Iterator[Server]:
    """Run one more gateway beside the cluster in `folder`."""
    url, login = broker_of(folder)
    log_file = folder / "gateway.log"
    own = {
        **variables,
        "SIE_NATS_URL": url,
        "SIE_NATS_USER": login["user"],
        "SIE_NATS_PASSWORD": login["password"],
        "SIE_MODELS_DIR": str(folder / "models"),
        "SIE_HF_FALLBACK": "false",
    }
    with log_file.open("wb") as log:
        command = [str(Path(sys.executable).with_name("sie")), "gateway", "--port", "0"]
        process = subprocess.Popen(command, env={**os.environ, **own}, stdout=log, stderr=log)
    second = Server(process, log_file)
    try:
        second.url = second.wait_for_log(r"listening on (http://[^\s\"]+)").group(1)
        yield second
    finally:
        process.kill()
        process.wait()
        print("---", log_file, *second.log().splitlines()[-40:], sep="\n")
