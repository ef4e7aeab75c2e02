"""The chart's ScaledObject against a real Prometheus that scrapes gateways: from no worker to one, three, and back."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from sie_sdk import SIEClient

from sie_core.serving.listening import reserve
from tests.cluster.processes.zero import BOUND_S, metric, worker
from tests.conftest import run_cluster
from tests.helm.engine import Helm, one
from tests.helm.running.scaler import Scaler
from tests.soak.faults.cluster import MODEL, another_gateway, journalled, until

PROMETHEUS = shutil.which("prometheus")
SETTINGS = {
    "SIE_MACHINE_PROFILE": "l4",
    "SIE_GATEWAY_CONFIGURED_GPUS": "l4",
    "SIE_HEALTH_PUBLISH_INTERVAL_MS": "300",
}
MOST = 3
pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.slow,
    pytest.mark.skipif(PROMETHEUS is None, reason="there is no `prometheus` on the PATH"),
]


@contextmanager
def prometheus(folder: Path, port: int, targets: list[str]) -> Iterator[str]:
    """Run one that knows nothing yet; gives its URL once it answers."""
    folder.mkdir()
    scraped = [{"job_name": "gateways", "static_configs": [{"targets": targets}]}]
    config = {"global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"}, "scrape_configs": scraped}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = [
        str(PROMETHEUS), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    url = f"http://127.0.0.1:{port}"

    def ready() -> bool:
        try:
            return httpx.get(f"{url}/-/ready", timeout=60).status_code == 200
        except httpx.HTTPError:
            return False

    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            until(ready, "Prometheus")
            yield url
        finally:
            process.kill()


def spec_of(helm: Helm, **pool: int) -> dict[str, Any]:
    """Render the ScaledObject of the pool `l4`; a further worker for each second that a request waits."""
    pools = {"cpu": {"enabled": False}, "l4": {"enabled": True, "maxReplicas": MOST, **pool}}
    scaling = {"enabled": True, "queueAgeSeconds": 1, "prometheus": {"serverAddress": "http://prometheus:9090"}}
    found = helm.render({"autoscaling": scaling, "workers": {"pools": pools}})
    spec: dict[str, Any] = one(found, "ScaledObject", "sie-worker-l4-default")["spec"]
    return spec


def scraped_since(url: str, began: float) -> bool:
    """Whether Prometheus has newer numbers of both gateways."""
    query = {"query": f"count(count by (instance) (timestamp(sie_gateway_pending_demand) > {began}))"}
    found = httpx.get(f"{url}/api/v1/query", params=query, timeout=BOUND_S).json()["data"]["result"]
    return bool(found) and float(found[0]["value"][1]) == 2


def polled(scaler: Scaler, after_s: float | None = None) -> int:
    """Poll once Prometheus has numbers that are newer than this call."""
    began = time.time()
    until(lambda: scraped_since(scaler.prometheus, began), "a scrape of every gateway")
    return scaler.poll(after_s)


def test_workers_come_by_demand_rise_under_load_outlive_prometheus_and_go(helm: Helm, tmp_path: Path) -> None:
    spec, floor = spec_of(helm), spec_of(helm, minReplicas=1)
    journalled(tmp_path)
    with ExitStack() as held:
        port = held.enter_context(reserve("127.0.0.1", 0))[1]
        first = held.enter_context(run_cluster(tmp_path, "--workers", "0", env=SETTINGS))
        second = held.enter_context(another_gateway(tmp_path, SETTINGS))
        until(lambda: second.probe("/readyz") == 200, "the second gateway")
        threads = held.enter_context(ThreadPoolExecutor(MOST))
        targets = [each.url.removeprefix("http://") for each in (first, second)]
        number = iter(range(100))

        def scraping(targets: list[str]) -> ExitStack:
            """Run a Prometheus of its own until the block ends."""
            stack = ExitStack()
            stack.enter_context(prometheus(tmp_path / f"prometheus-{next(number)}", port, targets))
            return held.enter_context(stack)

        def ask() -> list[float]:
            with SIEClient(second.url, gpu="l4") as client:
                return client.encode(MODEL, {"text": "x"}, provision_timeout_s=BOUND_S)["dense"].tolist()

        url = f"http://127.0.0.1:{port}"
        scaler, warm = Scaler(spec, url), Scaler(floor, url)
        running = scraping(targets)
        assert [polled(each) for each in (scaler, warm)] == [0, 1]
        asked = threads.submit(ask)
        until(lambda: metric(second.url, "pending_demand") > 0, "demand")
        assert polled(scaler) == 1
        with worker(tmp_path):
            assert asked.result(BOUND_S)
            (tmp_path / "hold").touch()
            calls = [threads.submit(ask) for _ in range(MOST)]
            until(lambda: metric(second.url, "queue_age_seconds") > MOST + 1, "requests that wait")
            assert polled(scaler) == MOST
            running.close()
            assert [scaler.poll() for _ in range(6)] == [MOST] * 6
            # From none, and unreachable: one after three failures, and never all.
            blind = Scaler(spec, url)
            assert [blind.poll() for _ in range(6)] == [0, 0, 1, 1, 1, 1]
            running = scraping([])
            assert [scaler.poll(spec["cooldownPeriod"]) for _ in range(6)] == [MOST] * 6
            lenient = deepcopy(spec)
            for each in lenient["triggers"]:
                each["metadata"]["ignoreNullValues"] = "true"
            careless = Scaler(lenient, url, replicas=MOST)
            assert careless.poll(spec["cooldownPeriod"]) == 0, "what the chart's setting prevents"
            running.close()
            scraping(targets)
            assert polled(scaler) == MOST
            (tmp_path / "hold").unlink()
            assert all(each.result(BOUND_S) for each in calls)
            assert [polled(scaler) for _ in range(2)] == [MOST] * 2, "an HPA waits before it goes down"
            assert polled(scaler, 400) == 1
            assert polled(scaler, spec["cooldownPeriod"]) == 0
        assert polled(warm, 10 * spec["cooldownPeriod"]) == 1
