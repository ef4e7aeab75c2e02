"""A real Prometheus that scrapes a gateway and a sidecar: every query of the cluster's dashboards returns data."""

from __future__ import annotations

import json
import re
from itertools import cycle
from pathlib import Path

import httpx
import pytest

from tests.cluster.processes.zero import worker
from tests.conftest import run_cluster
from tests.observability.test_prometheus import filled_in, prometheus, until
from tests.observability.test_rules import FOLDER, queries
from tests.soak.faults.cluster import until as until_true

BODY = {"items": [{"text": "x"}]}
PROFILES = cycle(("l4", "a100", "h100"))
"""Of a worker, of none that runs, and of none that is configured."""
SETTINGS = {"SIE_MACHINE_PROFILE": "l4", "SIE_GATEWAY_CONFIGURED_GPUS": "l4,a100"}

pytestmark = pytest.mark.timeout(300)


def test_every_query_returns_data(tmp_path: Path) -> None:
    with run_cluster(tmp_path, "--workers", "0", env=SETTINGS) as gateway, worker(tmp_path):

        def sidecars() -> list[str]:
            return re.findall(r"worker \S+, listening on (\S+)", (tmp_path / "worker.log").read_text())

        until_true(lambda: bool(sidecars()), "the sidecar listens")

        def ask() -> None:
            headers = {"X-SIE-MACHINE-PROFILE": next(PROFILES)}
            httpx.post(f"{gateway.url}/v1/encode/sie-fake/embedder", json=BODY, headers=headers, timeout=60)

        (tmp_path / "prometheus").mkdir()
        with prometheus(tmp_path / "prometheus", gateway.url, *sidecars()) as client:
            for name in ("cluster", "autoscaling"):
                for query in queries(json.loads((FOLDER / "dashboards" / f"{name}.json").read_text())):
                    until(client, filled_in(query), ask)
