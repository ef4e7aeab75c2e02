"""A cluster without a worker: clients wait through 202s and 503s until one is started, and an autoscaler sees it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from sie_sdk import SIEClient

from tests.cluster.processes.zero import BOUND_S, metric, worker
from tests.conftest import Server, run_cluster
from tests.soak.faults.cluster import until

MODEL = "sie-fake/embedder"
BODY = {"items": [{"text": "x"}]}
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    folder = tmp_path_factory.mktemp("zero")
    with run_cluster(folder, "--workers", "0", env={"SIE_MODEL_WAIT_S": "1"}) as server:
        yield server, folder


def ours(url: str) -> int:
    with SIEClient(url) as client:
        return len(client.encode(MODEL, ["a", "b"]))


def statuses(url: str, path: str, body: object, headers: dict[str, str] | None = None) -> list[int]:
    """What a client gets that comes back when it is told to, up to the first answer."""
    seen = list[int]()
    while not seen or seen[-1] in (202, 503):
        reply = httpx.post(f"{url}{path}", json=body, headers=headers, timeout=BOUND_S)
        seen.append(reply.status_code)
        time.sleep(min(1.0, float(reply.headers.get("retry-after", 0))))
    return seen


def test_clients_wait_until_a_worker_is_there_and_demand_rises_stays_and_falls(cluster: tuple[Server, Path]) -> None:
    server, folder = cluster
    url = server.url
    assert metric(url, "pending_demand") == 0
    accepted = httpx.post(f"{url}/v1/encode/{MODEL}", json=BODY, timeout=BOUND_S)
    assert (accepted.status_code, accepted.json()["error"]["code"]) == (202, "PROVISIONING")
    assert accepted.headers["retry-after"] == "5"
    assert metric(url, "pending_demand") == 1
    embed = {"model": MODEL, "input": "x"}
    with ThreadPoolExecutor(4) as threads:
        calls: list[Future[Any]] = [
            threads.submit(ours, url),
            threads.submit(statuses, url, f"/v1/encode/{MODEL}", BODY, {"X-SIE-SDK-Version": "0.10.1"}),
            threads.submit(statuses, url, "/v1/embeddings", embed),
            threads.submit(statuses, url, f"/v1/encode/{MODEL}", BODY, {"Prefer": "wait=100"}),
        ]
        until(lambda: metric(url, "pending_demand") >= 5, "the demand of all clients")
        until(lambda: metric(url, "provisioning_responses_total") >= 3, "the clients are told to come back")
        assert not any(call.done() for call in calls)
        with worker(folder):
            vectors, published, embeddings, held = [call.result(BOUND_S) for call in calls]
            assert metric(url, "pending_demand") == 0
        assert (vectors, set(published), published[-1]) == (2, {503, 200}, 200)
        assert (set(embeddings), embeddings[-1]) == ({503, 200}, 200)
        assert held == [200]
    until(lambda: httpx.post(f"{url}/v1/encode/{MODEL}", json=BODY, timeout=BOUND_S).status_code == 202, "no worker")
    assert metric(url, "pending_demand") == 1
