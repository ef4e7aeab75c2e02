"""What a gateway shows of its workers: `/health`, `/ws/cluster-status`, its metric, and who answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry
from sie_cluster.gateway.capacity.lanes import Lane, Lanes
from sie_cluster.gateway.capacity.profiles import Profiles
from sie_cluster.gateway.metrics import GatewayMetrics
from sie_cluster.gateway.sight.heard import gpu_of, held_models, standing_of, worker_info
from sie_cluster.messages.health import ModelReport, WorkerReport
from sie_cluster.settings import ClusterSettings
from starlette.testclient import TestClient

from sie_core.api import create_app
from sie_core.api.inference.direct import DirectApp
from tests.cluster.in_process import Cluster, running

MODEL = "sie-fake/embedder"
WORKER_FIELDS = {
    "name", "url", "gpu", "gpu_count", "ready_gpu_slots", "healthy", "queue_depth", "pending_cost", "inflight_batches",
    "loaded_models", "memory_used_bytes", "memory_total_bytes", "bundle", "bundle_config_hash",
}  # fmt: skip
ONE = WorkerReport("w1", "_default", "default", profile="l4-spot", gpu_type="l4", gpu_count=2, up=True)
TWO = WorkerReport("w2", "_default", "default", gpu_type="a100-80gb", gpu_count=1, up=True, saturated=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("sight")
    async with running(folder, machine_profile="L4-Spot", gpu_count=2, worker_id="w1") as cluster:
        yield cluster


def gateway(cluster: Cluster) -> DirectApp:
    return create_app(cluster.backend, ClusterSettings(gateway_configured_gpus=("l4",)), registry=CollectorRegistry())


@pytest.mark.asyncio(loop_scope="module")
async def test_an_answer_tells_who_gave_it_and_health_what_that_worker_has(cluster: Cluster) -> None:
    answer = await cluster.client.post(
        f"/v1/encode/{MODEL}", json={"items": [{"text": "a"}]}, headers={"Prefer": "wait=30"}
    )
    assert answer.headers["x-sie-worker"] == "w1"
    assert "x-sie-worker" not in (await cluster.alone.get("/health")).headers
    await cluster.until(lambda: any(MODEL in worker.loaded_models for worker in cluster.backend.workers()))
    await cluster.until(lambda: not any(each.held for each in cluster.workers.reports().values()))
    told = (await cluster.client.get("/health")).json()
    assert told["type"] == "gateway"
    assert set(told["cluster"]) == {"worker_count", "gpu_count", "models_loaded", "total_qps"}
    assert (told["cluster"]["worker_count"], told["cluster"]["gpu_count"]) == (1, 2)
    (worker,) = told["workers"]
    assert worker.keys() >= WORKER_FIELDS
    assert (worker["name"], worker["gpu"], worker["ready_gpu_slots"], worker["healthy"]) == ("w1", "l4-spot", 2, True)
    assert told["live_gpu_types"] == ["l4-spot"]
    (model,) = [each for each in told["models"] if each["name"] == MODEL]
    assert model == {
        "name": MODEL,
        "state": "loaded",
        "worker_count": 1,
        "gpu_types": ["l4-spot"],
        "total_queue_depth": 0,
    }


@pytest.mark.asyncio(loop_scope="module")
async def test_a_gateway_has_the_pages_of_a_server(cluster: Cluster) -> None:
    told = (await cluster.client.get("/")).json()
    assert (told["name"], told["type"]) == ("SIE", "gateway")
    assert MODEL in told["models"]
    for path, shown in (("/", "a gateway of version"), ("/docs", f'value="{MODEL}"')):
        page = await cluster.client.get(path, headers={"Accept": "text/html"})
        assert page.headers["content-type"].startswith("text/html")
        assert shown in page.text


@pytest.mark.asyncio(loop_scope="module")
async def test_the_socket_of_a_gateway_tells_what_health_does(cluster: Cluster) -> None:
    page = TestClient(gateway(cluster), base_url="http://sie")
    with page.websocket_connect("/ws/cluster-status") as watching:
        first, second = watching.receive_json(), watching.receive_json()
    assert set(first) == {"timestamp", "cluster", "workers", "models", "traffic"}
    assert second["timestamp"] > first["timestamp"]
    assert [worker["name"] for worker in first["workers"]] == ["w1"]


def test_each_worker_counts_under_one_standing_and_none_without_any() -> None:
    metrics, reports = GatewayMetrics(), list[WorkerReport]()
    metrics.watch_workers(lambda: reports)

    def counted() -> dict[str, float]:
        names = ("ready", "saturated", "draining", "away")
        return {name: metrics.registry.get_sample_value("sie_gateway_workers", {"status": name}) or 0 for name in names}

    assert sum(counted().values()) == 0
    reports += [ONE, TWO, replace(ONE, draining=True), replace(ONE, up=False), replace(ONE, up=False, draining=True)]
    assert counted() == {"ready": 1, "saturated": 1, "draining": 2, "away": 1}


def test_who_takes_no_more_work_has_no_slots() -> None:
    assert (worker_info(ONE).ready_gpu_slots, worker_info(ONE).healthy) == (2, True)
    assert (worker_info(TWO).ready_gpu_slots, worker_info(TWO).healthy) == (0, True)
    for report in (replace(ONE, up=False), replace(ONE, draining=True)):
        assert (worker_info(report).ready_gpu_slots, worker_info(report).healthy) == (0, False)
        assert standing_of(report) in ("away", "draining")


def test_a_model_has_the_best_state_that_a_worker_has_it_in() -> None:
    loaded, failed = ModelReport("loaded", held=2), ModelReport("failed", held=1)
    reports = [
        replace(ONE, models={"a": loaded, "b": failed}),
        replace(TWO, models={"a": failed, "b": ModelReport("loading"), "c": failed}),
    ]
    told = [tuple(asdict(model).values()) for model in held_models(reports)]
    assert told == [
        ("a", "loaded", 1, ["l4-spot"], 3),
        ("b", "loading", 1, ["any"], 1),
        ("c", "failed", 1, ["any"], 1),
    ]


@pytest.mark.parametrize(("report", "shown"), [(ONE, "l4-spot"), (TWO, "any"), (replace(TWO, gpu_type=None), "cpu")])
def test_the_gpu_that_is_shown_of_a_worker_may_be_asked_for_and_that_worker_takes_it(
    report: WorkerReport, shown: str
) -> None:
    assert gpu_of(report) == shown
    profile = Profiles((), lambda: {report.profile}).find(shown)
    lane = Lane(report.pool, report.resource_pool, profile, report.bundle)
    lanes = Lanes()
    lanes.heard(report)
    assert lanes.is_served(lane)


def test_cpu_is_a_profile_as_any_other_where_machines_are_called_so() -> None:
    assert Profiles(("cpu",)).find("cpu") == "cpu"
