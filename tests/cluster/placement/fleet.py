"""A broker, a gateway and workers of real processes, each of which journals what it loads and runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import httpx
import numpy as np
from safetensors.numpy import save_file
from sie_fake.record import Event, read_journal

from tests.conftest import Server
from tests.nats.conftest import Broker
from tests.soak.faults.cluster import until

BOUND_S = 60.0
BEAT_MS = 1000
SIZE = 210 << 20
"""Of a model: four fit into the memory of the emulated accelerator."""


class Address(Protocol):
    """A broker, or several."""

    @property
    def url(self) -> str: ...


@dataclass
class Fleet:
    """All of them."""

    folder: Path
    broker: Address
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=BOUND_S))
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    gateway: Server | None = None
    written: set[str] = field(default_factory=set)

    def write(self, model: str, loras: Iterable[str] = (), latency_ms: float = 0.0, **loadtime: object) -> None:
        """Write the config of a model whose runs take so long, and its LoRA adapters."""
        self.written.add(model)
        (self.folder / "models").mkdir(exist_ok=True)
        options = {"journal": "journal", "memory_bytes": SIZE, **loadtime}
        told = ", ".join(f"{name}: {value}" for name, value in options.items())
        paths = {name: self._lora(name) for name in loras}
        listed = ", ".join(f"{name}: {{weights_path: {path}}}" for name, path in paths.items())
        (self.folder / "models" / f"{model.replace('/', '-')}.yaml").write_text(
            f"sie_id: {model}\npackage_backed: true\ntasks: {{encode: {{dense: {{dim: 8}}}}}}\n"
            f"loras: {{{listed}}}\nprofiles:\n  default:\n    adapter_path: fake\n"
            f"    adapter_options:\n      runtime: {{latency_ms: {latency_ms}}}\n      loadtime: {{{told}}}\n"
        )

    def _lora(self, name: str) -> Path:
        folder = self.folder / "loras" / name
        folder.mkdir(parents=True)
        (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
        save_file({"w": np.zeros(16, dtype=np.float32)}, folder / "adapter_model.safetensors")
        return folder

    def run(self, name: str, *command: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start a program in a folder of its own."""
        home = self.folder / name
        home.mkdir(exist_ok=True)
        own = {
            "SIE_NATS_URL": self.broker.url, "SIE_MODELS_DIR": str(self.folder / "models"), "SIE_HF_FALLBACK": "false",
            "HF_HOME": str(self.folder / "hf"), "SIE_RUNNER": "priority",
            "SIE_HEALTH_PUBLISH_INTERVAL_MS": str(BEAT_MS), **variables,
        }  # fmt: skip
        with (home / "log").open("ab") as log:
            program = str(Path(sys.executable).with_name("sie"))
            return subprocess.Popen([program, *command], env={**os.environ, **own}, cwd=home, stdout=log, stderr=log)

    def add(self, *names: str, **variables: str) -> None:
        """Start workers, and wait until the gateway hears that they take work, and knows every model written by now."""
        for name in names:
            own = {
                "SIE_WORKER_ID": name, "SIE_HTTP_PORT": "0", "SIE_WORKER_METRICS_PORT": "0", "SIE_DEVICE": "fake",
                "SIE_MAX_LORAS_PER_MODEL": "10",
                "SIE_IPC_SOCKET_PATH": str(self.folder / f"{name}.sock"), **variables,
            }  # fmt: skip
            self.workers[name] = self.run(name, "worker", "--with-sidecar", **own)
        until(lambda: set(names) <= self.healthy(), f"workers {names}")
        until(lambda: self.written <= self.known(), "the models at the gateway")

    @contextmanager
    def another_gateway(self, **variables: str) -> Iterator[str]:
        """Run one more gateway until the end of the block; give its URL."""
        process = self.run("gateway2", "gateway", "--port", "0", **variables)
        second = Server(process, self.folder / "gateway2/log")
        try:
            yield second.wait_for_log(r"listening on (http://[^\s\"]+)").group(1)
        finally:
            process.kill()
            process.wait()

    def end(self, name: str, number: signal.Signals) -> None:
        """Send a worker a signal, and wait until it has ended."""
        process = self.workers.pop(name)
        process.send_signal(number)
        process.wait(BOUND_S)

    def known(self) -> set[str]:
        """Name the models that the gateway has read the configs of."""
        return {each["name"] for each in self.client.get(f"{self.url}/v1/models").json()["models"]}

    def healthy(self) -> set[str]:
        """Name the workers that take work."""
        told = self.client.get(f"{self.url}/health").json()["workers"]
        return {each["name"] for each in told if each["healthy"]}

    @property
    def url(self) -> str:
        assert self.gateway is not None
        return self.gateway.url

    def ask(self, model: str, text: str = "a text", lora: str | None = None, pool: str = "default") -> int:
        """Return the status of a request."""
        body = {"items": [{"text": text}], **({"params": {"options": {"lora": lora}}} if lora else {})}
        headers = {"Prefer": "wait=30", "X-SIE-Pool": pool}
        return self.client.post(f"{self.url}/v1/encode/{model}", json=body, headers=headers).status_code

    def events(self, name: str | None = None) -> list[Event]:
        """List what a worker did, or all."""
        folders = self.folder.iterdir() if name is None else [self.folder / name]
        return [event for folder in folders for event in read_journal(folder / "journal")]

    def loads(self, name: str | None = None, kind: str = "load") -> Counter[str]:
        """Count the loads of each model."""
        return Counter(
            event.texts[0] if kind == "lora" else event.model for event in self.events(name) if event.kind == kind
        )

    def has(self, name: str, model: str) -> bool:
        """Whether a worker that runs has a model loaded."""
        of_model = [event.kind for event in self.events(name) if event.model == model and event.kind != "lora"]
        return name in self.workers and bool(of_model) and of_model[-1] != "unload"

    def anywhere(self, model: str) -> bool:
        """Whether any worker that runs has a model loaded."""
        return any(self.has(name, model) for name in self.workers)

    @contextmanager
    def traffic(self, models: list[str], clients: int = 4) -> Iterator[list[int]]:
        """Ask for models in turn until the end of the block; gives the statuses that were no success."""
        failed, ended = list[int](), threading.Event()

        def ask(first: int) -> None:
            place = first
            while not ended.is_set():
                place += 1
                status = self.ask(models[place % len(models)], f"text {place}")
                if status != 200:
                    failed.append(status)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield failed
        finally:
            ended.set()
            for thread in threads:
                thread.join(BOUND_S)


@contextmanager
def fleet(folder: Path) -> Iterator[Fleet]:
    """Run a broker and a gateway until the end of the block."""
    broker = Broker(folder)
    broker.start()
    try:
        with fleet_at(broker, folder) as running:
            yield running
    finally:
        broker.kill()


@contextmanager
def fleet_at(broker: Address, folder: Path, **variables: str) -> Iterator[Fleet]:
    """Run a gateway at a broker until the end of the block; workers that were added end with it.

    Args:
        broker: Runs.
        folder: Where everything goes.
        variables: Settings of the gateway.
    """
    running = Fleet(folder, broker)
    (folder / "models").mkdir()
    process = running.run("gateway", "gateway", "--port", "0", **variables)
    running.gateway = Server(process, folder / "gateway/log")
    try:
        running.gateway.url = running.gateway.wait_for_log(r"listening on (http://[^\s\"]+)").group(1)
        yield running
    finally:
        for each in (*running.workers.values(), process):
            each.kill()
            each.wait()
