"""`sie cluster up`: what ends is started again, what it started ends with it, and clients notice little."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil
import pytest
from sie_sdk import SIEClient

from tests.conftest import Server, run_cluster

EMBEDDER = "sie-fake/embedder"
BOUND_S = 60.0


def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + BOUND_S
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"never: {what}")
        time.sleep(0.05)


def below(server: Server) -> list[psutil.Process]:
    return psutil.Process(server.process.pid).children(recursive=True)


class Clients:
    """Ask for one text each, again and again, and compare each vector with the first; they try again where told to."""

    def __init__(self, url: str, count: int) -> None:
        self.wrong: list[str] = []
        self.answered = [0] * count
        self._url, self._done = url, threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(count)]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(BOUND_S)

    def go_on(self) -> None:
        """Wait until each has had an answer to a request that it sends from now on."""
        before = list(self.answered)
        until(lambda: self.wrong != [] or all(now > then + 1 for now, then in zip(self.answered, before, strict=True)),
              "an answer to each client")  # fmt: skip
        assert self.wrong == []

    def _ask(self, number: int) -> None:
        text = f"text {number}"
        with SIEClient(self._url, timeout_s=BOUND_S) as client:
            expected = client.encode(EMBEDDER, text)["dense"].tolist()
            while not self._done.is_set():
                try:
                    result = client.encode(EMBEDDER, text, provision_timeout_s=BOUND_S)
                except Exception as error:
                    self.wrong.append(repr(error))
                    return
                if result["dense"].tolist() != expected:
                    self.wrong.append(f"another vector for {text}")
                self.answered[number] += 1


def process(server: Server, word: str) -> psutil.Process:
    return next(each for each in below(server) if any(word in part for part in each.cmdline()))


@pytest.mark.timeout(400)
def test_requests_outlive_the_kill_of_each_process(tmp_path: Path) -> None:
    """A sidecar, a worker, the broker and the gateway are killed in turn under load; every vector is right.

    So do they a text that ends every process that runs it, which alone is refused.
    """
    (tmp_path / "models").mkdir()
    (tmp_path / "models/poison.yaml").write_text(
        "sie_id: test/poison\npackage_backed: true\ntasks: {encode: {dense: {dim: 8}}}\nprofiles:\n  default:\n"
        "    adapter_path: fake\n    adapter_options: {loadtime: {exit_text: '[exit]'}}\n"
    )
    with run_cluster(tmp_path, "--workers", "2", "--preload", EMBEDDER) as server:
        with Clients(server.url, 4) as clients:
            clients.go_on()
            for word in ("sidecar", "--with-sidecar", "nats.conf", "gateway"):
                killed = process(server, word)
                killed.kill()
                killed.wait(BOUND_S)
                clients.go_on()
                until(lambda: len(below(server)) == 6, f"another process for {word}")
                until(lambda: healthy_workers(server.url) == 2, "two workers")
                clients.go_on()
            poison = httpx.post(
                f"{server.url}/v1/encode/test/poison",
                json={"items": [{"text": "[exit]"}]},
                headers={"Prefer": "wait=60"},
                timeout=2 * BOUND_S,
            )
            assert (poison.status_code, poison.json()["error"]["code"]) == (500, "INTERNAL_ERROR")
            clients.go_on()
        assert clients.wrong == []
        # The command itself at last: nothing that it started is left.
        started = below(server)
        server.process.kill()
        server.process.wait()
        _, alive = psutil.wait_procs(started, timeout=BOUND_S)
        assert [each for each in alive if each.status() != psutil.STATUS_ZOMBIE] == []


@pytest.mark.timeout(400)
def test_no_request_fails_while_workers_and_sidecars_are_told_to_end(tmp_path: Path) -> None:
    """What is at work is answered, what is not begun goes to the other worker: clients see nothing of it."""
    with run_cluster(tmp_path, "--workers", "2", "--preload", EMBEDDER) as server:
        statuses: set[int] = set()
        done = threading.Event()

        def ask() -> None:
            body = {"items": [{"text": f"text {place}"} for place in range(50)]}
            with httpx.Client(timeout=BOUND_S) as client:
                while not done.is_set():
                    statuses.add(client.post(f"{server.url}/v1/encode/{EMBEDDER}", json=body).status_code)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for word in ("sidecar", "--with-sidecar"):
            ended = process(server, word)
            ended.terminate()
            ended.wait(BOUND_S)
            until(lambda: len(below(server)) == 6 and healthy_workers(server.url) == 2, "two workers")
        done.set()
        for thread in threads:
            thread.join(BOUND_S)
        assert statuses == {200}
        with pytest.raises(RuntimeError, match="Another cluster runs in"), run_cluster(tmp_path):
            pass
        left = below(server)
        server.signal(signal.SIGINT)
        assert server.wait(BOUND_S) == 0
        assert not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in left)


def healthy_workers(url: str) -> int:
    try:
        workers = httpx.get(f"{url}/health", timeout=10).json()["workers"]
    except httpx.TransportError:
        return 0
    return sum(worker["healthy"] for worker in workers)
