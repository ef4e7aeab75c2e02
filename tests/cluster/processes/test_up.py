"""`sie cluster up`: what it started ends with it, in order where there is time."""

from __future__ import annotations

import re
import signal
import threading
from pathlib import Path

import httpx
import psutil
import pytest
from sie_cluster.local.logs import MOST_BYTES

from tests.conftest import run_cluster
from tests.soak.faults.cluster import MODEL, below, journalled, until

BOUND_S = 60.0
pytestmark = pytest.mark.timeout(300)


def running(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [each for each in processes if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.usefixtures("heard_signals")
def test_a_terminal_that_closes_drains_in_order_and_a_second_cluster_of_the_folder_is_refused(tmp_path: Path) -> None:
    """The request in flight is answered: the gateway waits for it, the worker for the gateway, the broker for both.

    A terminal that closes may send the signal twice.
    """
    journalled(tmp_path)
    with run_cluster(tmp_path, "--preload", MODEL, "--table", env={"SIE_ACCESS_LOG": "all"}) as server:
        with pytest.raises(RuntimeError, match="Another cluster runs in"), run_cluster(tmp_path):
            pass
        until(lambda: "0 requests wait for workers" in server.log(), "the table")
        for process in ("broker", "config", "gateway", "worker-1", "  sidecar"):
            assert re.search(rf"^{process} +\d+ +\d+% +\d+ MB", server.log(), re.MULTILINE)
        started, hold, statuses = below(server), tmp_path / "hold", []
        hold.touch()

        def ask() -> None:
            body = {"items": [{"text": "in flight"}]}
            statuses.append(httpx.post(f"{server.url}/v1/encode/{MODEL}", json=body, timeout=BOUND_S).status_code)

        asking = threading.Thread(target=ask)
        asking.start()
        until(lambda: "in flight" in (tmp_path / "journal").read_text(), "the run")
        until(lambda: "1 requests wait for workers" in server.log(), "the request in the table")
        gateway = tmp_path / "cluster/gateway.log"
        with gateway.open("ab") as log:
            log.write(b"a" * MOST_BYTES)
        until(lambda: (tmp_path / "cluster/gateway.log.1").exists() and gateway.stat().st_size < MOST_BYTES, "the move")
        server.signal(signal.SIGHUP)
        until(lambda: "requests in flight get up to" in gateway.read_text(), "the gateway drains")
        server.signal(signal.SIGHUP)
        assert len(running(started)) == len(started)
        hold.unlink()
        asking.join(BOUND_S)
        assert server.wait(BOUND_S) == 0
        assert statuses == [200]
        assert running(started) == []
        logs = {name: (tmp_path / f"cluster/{name}.log").read_text() for name in ("gateway", "worker-1")}
        assert f"sie_core.access: POST /v1/encode/{MODEL} 200 [model=" in logs["gateway"]
        assert "sie_core.access: encode of 1 items, slice 0 of 1, " in logs["worker-1"]
        ended = [re.findall(r"^(\S+) .*: stopped", log, re.MULTILINE)[-1] for log in logs.values()]
        assert ended == sorted(ended)


@pytest.mark.usefixtures("heard_signals")
def test_a_hangup_has_every_program_read_its_log_settings_and_a_killed_command_leaves_no_orphan(tmp_path: Path) -> None:
    file = tmp_path / "log.env"
    file.touch()
    with run_cluster(tmp_path, env={"SIE_LOG_SETTINGS": str(file)}) as server:
        started = below(server)
        assert len(started) == 5
        file.write_text("SIE_LOG_LEVEL=DEBUG")
        server.signal(signal.SIGHUP)
        logs = [tmp_path / f"cluster/{name}.log" for name in ("config", "gateway", "worker-1")]
        told = "SIGHUP: SIE_LOG_LEVEL=DEBUG"
        # A worker's sidecar writes to its log.
        until(lambda: [each.read_text().count(told) for each in logs] == [1, 1, 2], "the new level")
        assert len(running(started)) == 5
        server.process.kill()
        server.process.wait()
        _, alive = psutil.wait_procs(started, timeout=BOUND_S)
        assert running(alive) == []


def test_of_three_brokers_one_may_be_killed_and_every_request_is_answered(tmp_path: Path) -> None:
    journalled(tmp_path)
    with run_cluster(tmp_path, "--brokers", "3", "--preload", MODEL) as server:
        brokers = [each for each in below(server) if "nats-server" in each.cmdline()[0]]
        assert len(brokers) == 3
        statuses, ended = [], threading.Event()

        def ask(number: int) -> int:
            body = {"items": [{"text": f"text {number}"}]}
            headers = {"Prefer": "wait=30"}
            reply = httpx.post(f"{server.url}/v1/encode/{MODEL}", json=body, headers=headers, timeout=BOUND_S)
            return reply.status_code

        def ask_on() -> None:
            while not ended.is_set():
                statuses.append(ask(len(statuses)))

        asking = threading.Thread(target=ask_on)
        asking.start()
        try:
            until(lambda: len(statuses) >= 10, "requests")
            brokers[0].kill()
            brokers[0].wait(BOUND_S)
            before = len(statuses)
            until(lambda: len(statuses) >= before + 10, "requests beside two brokers")
        finally:
            ended.set()
            asking.join(BOUND_S)
        assert set(statuses) == {200}
        until(lambda: sum("nats-server" in each.cmdline()[0] for each in below(server)) == 3, "the third again")
