"""A cluster without a worker: clients wait through 202s and 503s until one is started, and an autoscaler sees it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from sie_cluster.gateway.capacity.numbers import ABOUT
from sie_sdk import SIEClient

from tests.cluster.processes.zero import BOUND_S, metric, worker
from tests.conftest import Server, run_cluster
from tests.soak.faults.cluster import MODEL as HELD
from tests.soak.faults.cluster import another_gateway, journalled, until

MODEL = "sie-fake/embedder"
BODY = {"items": [{"text": "x"}]}
PLACES = 6
SETTINGS = {
    "SIE_MODEL_WAIT_S": "1",
    "SIE_MACHINE_PROFILE": "l4",
    "SIE_GATEWAY_CONFIGURED_GPUS": "l4",
    "SIE_GATEWAY_MAX_CONCURRENT_REQUESTS": str(PLACES),
    "SIE_HEALTH_PUBLISH_INTERVAL_MS": "300",
    "SIE_TRUSTED_PROXIES": "127.0.0.0/8",
}
CLIENTS = count()
LABELS = ("machine_profile", "bundle", "reason")
ON_L4 = {"X-SIE-MACHINE-PROFILE": "l4"}
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    folder = tmp_path_factory.mktemp("zero")
    journalled(folder)
    with run_cluster(folder, "--workers", "0", env=SETTINGS) as server:
        yield server, folder


@pytest.fixture
def gateways(cluster: tuple[Server, Path]) -> Iterator[tuple[str, str]]:
    """The URLs of the cluster's gateway and of one more."""
    server, folder = cluster
    with another_gateway(folder, SETTINGS) as second:
        yield server.url, second.url


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
            with SIEClient(url) as client:
                for model in ("sie-fake/reranker", "sie-fake/extractor"):  # of which neither encodes
                    assert client.wait_for_capacity("l4", model=model, timeout_s=BOUND_S)["worker_count"] == 1
        assert (vectors, set(published), published[-1]) == (2, {503, 200}, 200)
        assert (set(embeddings), embeddings[-1]) == ({503, 200}, 200)
        assert held == [200]
    until(lambda: httpx.post(f"{url}/v1/encode/{MODEL}", json=BODY, timeout=BOUND_S).status_code == 202, "no worker")
    assert metric(url, "pending_demand") == 1


@dataclass(frozen=True)
class Numbers:
    """The metrics that an autoscaler reads of several gateways, added as their own help texts say."""

    urls: tuple[str, ...]

    def families(self, url: str) -> dict[str, Metric]:
        told = httpx.get(f"{url}/metrics", timeout=BOUND_S).text
        return {each.name.removeprefix("sie_gateway_"): each for each in text_string_to_metric_families(told)}

    def over(self, name: str) -> dict[tuple[str, ...], float]:
        """By machine profile, bundle and, where there is one, reason."""
        families = [self.families(url)[name] for url in self.urls]
        add = {"sum": sum, "max": max}[families[0].documentation.rpartition("Over gateways: ")[2].rstrip(".")]
        values: dict[tuple[str, ...], list[float]] = {}
        for sample in (sample for family in families for sample in family.samples):
            labels = tuple(sample.labels[each] for each in LABELS if each in sample.labels)
            values.setdefault(labels, []).append(sample.value)
        return {labels: add(each) for labels, each in values.items()}

    def total(self, name: str) -> float:
        return sum(self.over(name).values())

    def series(self) -> set[tuple[str, ...]]:
        """The names and labels that each gateway tells; both tell the same."""
        told = [
            {(name, *sample.labels.items()) for name in ABOUT for sample in self.families(url)[name].samples}
            for url in self.urls
        ]
        assert told[0] == told[1]
        return told[0]


def asked(url: str, headers: dict[str, str] | None = None, text: str = "x") -> httpx.Response:
    """Ask as a client of one's own: one alone may not take all places."""
    body, address = {"items": [{"text": text}]}, f"10.0.{next(CLIENTS)}.1"
    headers = {"X-Forwarded-For": address, **(headers or {})}
    return httpx.post(f"{url}/v1/encode/{HELD}", json=body, headers=headers, timeout=BOUND_S)


def slices_held(folder: Path) -> float:
    """What the worker's sidecar counts itself."""
    url = re.findall(r"worker \S+, listening on (\S+)", (folder / "worker.log").read_text())[-1]
    return float(
        re.findall(r"^sie_sidecar_slices_held (\S+)$", httpx.get(f"{url}/metrics", timeout=60).text, re.MULTILINE)[0]
    )


def test_every_number_added_over_two_gateways_is_the_truth(
    cluster: tuple[Server, Path], gateways: tuple[str, str]
) -> None:
    folder, (one, other) = cluster[1], gateways
    numbers = Numbers(gateways)
    until(lambda: httpx.get(f"{other}/readyz", timeout=60).status_code == 200, "the second gateway")
    series, before = numbers.series(), {name: numbers.over(name) for name in ABOUT}

    def gained(name: str, *labels: str) -> float:
        return numbers.over(name)[labels] - before[name][labels]

    for url in (one, other, one, other, other):
        assert asked(url, ON_L4).status_code == 202
    for url in gateways:
        assert asked(url, {"X-SIE-MACHINE-PROFILE": "h100"}).status_code == 400
    assert gained("pending_demand", "l4", "default") == 5
    assert gained("provisioning_responses", "l4", "default") == 5
    assert gained("rejected_requests", "l4", "default", "provisioning") == 5
    assert gained("rejected_requests", "unknown", "", "profile") == 2

    with worker(folder), ThreadPoolExecutor(2 * PLACES) as threads:
        until(lambda: numbers.total("pending_demand") == 0, "a worker, which ends demand")
        until(lambda: asked(other).status_code == 200, "the model")
        (folder / "hold").touch()
        earliest = time.monotonic()
        calls = [threads.submit(asked, other, None, "y" * 5000)]
        until(lambda: numbers.total("queued_cost") > 5000, "the oldest request")
        latest = time.monotonic()
        calls += [threads.submit(asked, one, None, "y" * 5000) for _ in range(PLACES - 1)]
        until(lambda: numbers.total("queued_cost") > PLACES * 5000, "requests of one model, as many as it may have")
        assert asked(one).json()["error"]["code"] == "QUEUE_FULL"
        calls += [threads.submit(asked, one, ON_L4, "y" * 5000)]
        until(lambda: numbers.total("queued_cost") > (PLACES + 1) * 5000, "another queue's request in the last place")
        assert "SIE_GATEWAY_MAX_CONCURRENT_REQUESTS" in asked(one).json()["error"]["message"]
        assert gained("rejected_requests", "l4", "default", "queue_full") == 1
        assert gained("rejected_requests", "", "", "places") == 1
        # Requests that name no profile count to the first that can be scaled.
        assert numbers.over("queued_cost")["l4", "default"] == pytest.approx((PLACES + 1) * 5000, rel=0.05)
        least = time.monotonic() - latest
        age = numbers.over("queue_age_seconds")["l4", "default"]
        assert least <= age <= time.monotonic() - earliest
        until(lambda: slices_held(folder) == PLACES + 1, "every slice at the worker")
        until(lambda: numbers.over("worker_queue_depth")["l4", "default"] == PLACES + 1, "the worker to say so")
        (folder / "hold").unlink()
        assert {call.result(BOUND_S).status_code for call in calls} == {200}
        assert numbers.total("queued_cost") == numbers.total("queue_age_seconds") == 0
        until(lambda: numbers.total("worker_queue_depth") == 0, "an idle worker")
        with SIEClient(one) as client:
            client.create_pool("numbers", {"l4": 1})
            until(lambda: numbers.over("active_lease_gpus")["l4", "default"] == 1, "the lease")
            until(lambda: all(Numbers((url,)).total("active_lease_gpus") == 1 for url in gateways), "it at both")
            assert numbers.total("active_lease_gpus") == 1
            client.delete_pool("numbers")
        until(lambda: numbers.total("active_lease_gpus") == 0, "the end of the lease")
        assert numbers.series() == series
    until(lambda: asked(one).status_code == 202, "no worker")
    assert numbers.series() == series
