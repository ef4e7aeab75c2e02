"""Clients of a model on an engine and of an ordinary one beside it, while one fault after another strikes the engine.

`python -m tests.sglang.siege` does it with 64 clients for longer, and prints what the faults cost the other model.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
import psutil

from tests.conftest import FAKES, Server, run_server

MODEL = "test/qwen3"
CONFIG = """
sie_id: {name}
weights_path: {folder}
tasks: {{encode: {{dense: {{dim: 32}}}}}}
profiles: {{default: {{adapter_path: sglang, compute_precision: float32}}}}
"""
OTHER = FAKES[0]
TEXTS = [f"text {number}" for number in range(32)]
BOUND_S = 60.0
HEADERS = {"Accept": "application/json"}
PAUSE_S = 0.05
"""Between an answer and the next request of a client."""
HANGS_S = 5
"""The engine's `SIE_SGLANG_ANSWER_TIMEOUT_S`."""


def write_config(weights: Path, folder: Path) -> Path:
    """Write the config of `MODEL` below `folder`, for a server that runs there."""
    (folder / "models").mkdir(parents=True)
    (folder / "models" / "model.yaml").write_text(CONFIG.format(name=MODEL, folder=weights))
    return folder


def engines(server: Server) -> list[psutil.Process]:
    """The guards and engines below a server."""
    return psutil.Process(server.process.pid).children(recursive=True)


@dataclass
class Siege:
    """Clients that ask until they are told to stop; every wait is bounded."""

    server: Server
    orders: Path
    count: int = 0
    """Clients of `MODEL`."""
    right: dict[str, object] = field(default_factory=dict)
    """The vector of each text, as it was before the first fault."""
    answered: Counter[int] = field(default_factory=Counter)
    """Right answers by client."""
    errors: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    others_ms: list[float] = field(default_factory=list)
    others_failed: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def clients(self, count: int) -> Iterator[None]:
        """Have `count` clients ask for `MODEL`, and two for the other model."""
        with httpx.Client(base_url=self.server.url, timeout=BOUND_S, headers=HEADERS) as client:
            served(client, OTHER, "beside")
            self.right = {text: vector(served(client, MODEL, text)) for text in TEXTS}
        self.count = count
        threads = [threading.Thread(target=self._client, args=(number,), daemon=True) for number in range(count)]
        threads += [threading.Thread(target=self._other, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.over.set()
            for thread in threads:
                thread.join(BOUND_S)
        assert not any(thread.is_alive() for thread in threads), "no answer is lost"

    def _client(self, number: int) -> None:
        chance = np.random.default_rng(number)
        with httpx.Client(base_url=self.server.url, timeout=BOUND_S, headers=HEADERS) as client:
            while not self.over.is_set():
                text = TEXTS[chance.integers(len(TEXTS))]
                reply = ask(client, MODEL, text)
                if reply.status_code == 200:
                    self.answered[number] += 1
                    if vector(reply) != self.right[text]:
                        self.wrong.append(text)
                else:
                    self.errors[reply.json()["error"]["code"]] += 1
                time.sleep(PAUSE_S)

    def _other(self) -> None:
        with httpx.Client(base_url=self.server.url, timeout=BOUND_S, headers=HEADERS) as client:
            while not self.over.is_set():
                started = time.perf_counter()
                reply = ask(client, OTHER, "beside")
                self.others_ms.append(1000 * (time.perf_counter() - started))
                if reply.status_code != 200:
                    self.others_failed.append(reply.text)
                time.sleep(PAUSE_S)

    def serves_again(self) -> float:
        """Wait until every client got two right answers more; return the seconds."""
        before, started = Counter(self.answered), time.monotonic()
        while any(self.answered[client] < before[client] + 2 for client in range(self.count)):
            assert time.monotonic() < started + BOUND_S, f"{self.errors}, {self.server.log()[-3000:]}"
            time.sleep(PAUSE_S)
        return time.monotonic() - started

    def strike(self, fault: Fault) -> float:
        """Do one fault; return the seconds until every client is served again."""
        before = engines(self.server)
        for order in fault.orders:
            (self.orders / order).touch()
        if fault.kills is not None:
            guards = [each for each in before if "guard.py" in " ".join(each.cmdline())]
            struck = guards if fault.kills == "guard" else [each for each in before if each not in guards]
            assert struck, before
            for process in struck:
                os.kill(process.pid, fault.signal)
        if fault.restarts:
            left = psutil.wait_procs(before, timeout=BOUND_S)[1]
            assert not left, f"{fault.name}: {left} of {before} are left. {self.errors}, {self.answered}"
        deadline = time.monotonic() + BOUND_S
        while any((self.orders / order).exists() for order in fault.orders):
            assert time.monotonic() < deadline, f"{fault.name}: {list(self.orders.iterdir())}"
            time.sleep(PAUSE_S)
        return self.serves_again()


def ask(client: httpx.Client, model: str, text: str) -> httpx.Response:
    return client.post(f"/v1/encode/{model}", json={"items": [{"text": text}]})


def served(client: httpx.Client, model: str, text: str) -> httpx.Response:
    """Ask until the model is loaded."""
    deadline = time.monotonic() + BOUND_S
    while (reply := ask(client, model, text)).status_code == 503:
        assert time.monotonic() < deadline, reply.text
        time.sleep(PAUSE_S)
    assert reply.status_code == 200, reply.text
    return reply


def vector(reply: httpx.Response) -> object:
    return reply.json()["items"][0]["dense"]


@dataclass(frozen=True)
class Fault:
    """One fault: orders for the stand-in, a signal to the engine or its guard, or both."""

    name: str
    orders: tuple[str, ...] = ()
    kills: str | None = None
    signal: signal.Signals = signal.SIGKILL
    restarts: bool = False


FAULTS = (
    Fault("a child that forks, whose processes the next fault is to end", ("start-fork", "die"), restarts=True),
    Fault("kill -9 of the engine", kills="engine", restarts=True),
    Fault("kill -9 of its guard", kills="guard", restarts=True),
    Fault("a stopped engine", kills="engine", signal=signal.SIGSTOP, restarts=True),
    Fault("an end in a request", ("die",), restarts=True),
    Fault("a request that hangs", ("hang",), restarts=True),
    Fault("an internal error", ("fail",)),
    Fault("out of memory in flight", ("memory",)),
    Fault("an answer cut short", ("cut",)),
    Fault("an answer in another order", ("reorder",)),
    Fault("an answer that lacks a vector", ("short",)),
    Fault("NaN", ("nan",)),
    Fault("a vector of another width", ("narrow",)),
    Fault("a restart that takes long", ("start-slow", "die"), restarts=True),
    Fault("a restart whose port is taken", ("start-taken", "die"), restarts=True),
    Fault("a restart that lacks memory", ("start-memory", "die"), restarts=True),
    Fault("a restart that fails", ("start-fail", "die"), restarts=True),
    Fault("a log without end", ("start-noise", "die"), restarts=True),
)
ALLOWED = {"MODEL_LOADING", "QUEUE_UNAVAILABLE", "NON_FINITE_OUTPUT"}
"""What clients may be told; the last belongs to NaN."""


def main(clients: int) -> None:
    """Print the other model's 95th percentile under each fault over the quiet one before it."""
    from tests.sglang.conftest import write_embedder, write_python

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        orders = folder / "orders"
        orders.mkdir()
        weights = write_embedder("qwen3", folder)
        env = {
            "SIE_SGLANG_PYTHON": str(write_python(folder, orders, plain=True)),
            "SIE_SGLANG_ANSWER_TIMEOUT_S": str(HANGS_S),
            "STANDIN_NOISE_MIB": "100",
        }
        with run_server(write_config(weights, folder / "server"), env) as server:
            siege = Siege(server, orders)
            with siege.clients(clients):
                for fault in FAULTS:
                    siege.others_ms.clear()
                    time.sleep(4)
                    quiet = np.percentile(siege.others_ms, 95)
                    siege.others_ms.clear()
                    took = siege.strike(fault)
                    time.sleep(max(0.0, 4 - took))
                    struck = np.percentile(siege.others_ms, 95)
                    print(
                        f"{fault.name}: {quiet:.1f} → {struck:.1f} ms, {struck / quiet:.2f}; {took:.1f} s", flush=True
                    )
            print(dict(siege.errors), sum(siege.answered.values()), siege.wrong, siege.others_failed)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 64)
