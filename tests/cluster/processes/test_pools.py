"""Resource pools of a real cluster: nobody else's work on a leased worker, leases that are renewed and that end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sie_fake.record import read_journal
from sie_sdk import PoolError, SIEClient
from sie_sdk._calls.cluster import pools

from tests.conftest import run_cluster
from tests.soak.faults.cluster import MODEL, journalled, until

LEASE_S = 6
PAGE = (Path(__file__).parents[3] / "docs/operate/cluster/pools.md").read_text(encoding="utf-8")
PAIRS = re.findall(r"```sh\n([^`]*)```\n+```json\n([^`]*)```", PAGE)
SETTINGS = {
    "SIE_POOL_LEASE_S": str(LEASE_S),
    "SIE_MACHINE_PROFILE": "l4",
    "SIE_GATEWAY_CONFIGURED_GPUS": "l4",
    "SIE_MODEL_WAIT_S": "1",
}
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("pools")
    journalled(folder)
    with run_cluster(folder, "--workers", "1", "--preload", MODEL, env=SETTINGS) as server:
        until(
            lambda: httpx.get(f"{server.url}/v1/pools", timeout=60).json()["pools"][0]["status"]["assigned_workers"],
            "a worker",
        )
        yield server.url, folder


@pytest.fixture
def client(cluster: tuple[str, Path]) -> Iterator[SIEClient]:
    with SIEClient(cluster[0]) as client:
        yield client


def texts(folder: Path) -> set[str]:
    return {text for event in read_journal(folder / "journal") if event.kind == "run" for text in event.texts}


def state(client: SIEClient, pool: str) -> str | None:
    told = client.get_pool(pool)
    return None if told is None else told["status"]["state"]


def test_a_leased_worker_serves_its_pool_alone_as_long_as_the_lease_is_renewed(cluster, client, monkeypatch) -> None:
    url, folder = cluster
    monkeypatch.setattr(pools, "RENEW_S", 0.5)
    client.create_pool("mine", {"l4": 1})
    until(lambda: state(client, "mine") == "active", "the pool")
    body = {"items": [{"text": "foreign"}]}
    assert httpx.post(f"{url}/v1/encode/{MODEL}", json=body, timeout=30).status_code == 202
    client.encode(MODEL, "ours", gpu="mine/l4")
    told = client.get_pool()
    assert told is not None
    began = told["status"]["created_at"]
    assert began is not None
    until(lambda: client.get_pool()["status"]["last_renewed"] > began + 1.5 * LEASE_S, "renewals")
    assert httpx.post(f"{url}/v1/encode/{MODEL}", json=body, timeout=30).status_code == 202
    assert "ours" in texts(folder)
    assert "foreign" not in texts(folder)
    assert client.delete_pool()
    assert (client.get_pool(), client.delete_pool()) == (None, False)
    client.encode(MODEL, "free")
    assert "free" in texts(folder)


def test_the_lease_of_a_client_that_was_killed_ends(cluster, client) -> None:
    url, _ = cluster
    program = (
        "import sys, time; from sie_sdk import SIEClient; c = SIEClient(sys.argv[1]); c.create_pool('left'); print(1)"
    )
    left = subprocess.Popen(
        [sys.executable, "-c", f"{program}; sys.stdout.flush(); time.sleep(300)", url], stdout=subprocess.PIPE
    )
    assert left.stdout is not None
    left.stdout.readline()
    os.kill(left.pid, signal.SIGKILL)
    left.wait()
    until(lambda: state(client, "left") == "expired", "the end of the lease")
    client.encode(MODEL, "afterwards")


def test_what_is_refused_is_a_pool_error(client) -> None:
    with pytest.raises(PoolError, match="h100"):
        client.create_pool("other", {"h100": 1})
    with pytest.raises(PoolError, match="default"):
        client.delete_pool("default")


def test_the_requests_of_the_page_answer_what_it_prints(cluster, tmp_path: Path) -> None:
    url, _ = cluster
    for asked, answer in PAIRS:
        here = asked.replace("http://127.0.0.1:8080", url)
        if "X-SIE-Pool" in asked:
            until(
                lambda: httpx.get(f"{url}/v1/pools/nightly", timeout=60).json()["status"]["state"] == "active",
                "the pool",
            )
        done = subprocess.run(["bash", "-ec", here], cwd=tmp_path, capture_output=True, text=True, timeout=250)
        assert done.returncode == 0, done.stderr
        pattern = ".*?".join(map(re.escape, answer.strip().split("...")))
        assert re.fullmatch(pattern, done.stdout.strip(), re.DOTALL), f"{asked}\n{done.stdout}"
    assert len(PAIRS) == 5
