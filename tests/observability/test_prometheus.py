"""A real Prometheus that scrapes a real server at work: every query of the dashboards returns data."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Server, run_server
from tests.observability.test_rules import DASHBOARDS, FOLDER, RULES, queries

MODEL = "sie-fake/embedder"
LONGEST_S = 60
OF_FAULTS = {
    "sie_batch_failures_total", "sie_model_evictions_total", "sie_model_unloads_total",
}  # fmt: skip
"""What this load does not bring about; a panel of it may be empty."""

pytestmark = pytest.mark.timeout(300)


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[httpx.Client]:
    """Run a Prometheus that scrapes one server each second, with our rules."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed")
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    shutil.copy(FOLDER / "rules.yaml", folder)
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yaml]\n"
        f"scrape_configs: [{{job_name: sie, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    command = [program, "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, "--storage.tsdb.path=data"], cwd=folder, stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            yield client
    finally:
        process.terminate()
        process.wait(30)


def results(client: httpx.Client, query: str) -> list[Any]:
    """Run a query; a mistake in it fails the test."""
    try:
        reply = client.get("/api/v1/query", params={"query": query})
    except httpx.TransportError:  # it starts
        return []
    if reply.status_code == 503:
        return []
    told = reply.json()
    assert told["status"] == "success", (query, told)
    found: list[Any] = told["data"]["result"]
    return found


def until(client: httpx.Client, query: str, said: Any = None) -> list[Any]:
    """Wait until a query returns something."""
    end = time.monotonic() + LONGEST_S
    while not (found := results(client, query)):
        assert time.monotonic() < end, query
        if said is not None:
            said()
    return found


def filled_in(query: str) -> str:
    for variable, value in {"$job": "sie", "$instance": ".*", "$model": ".*", "$__rate_interval": "30s"}.items():
        query = query.replace(variable, value)
    return query


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    environment = {"SIE_PLUGINS": "fake", "SIE_INSTRUMENTATION": "true"}
    with run_server(tmp_path / "server", environment, ["--preload", MODEL]) as server:
        yield server


def test_every_query_returns_data_and_counts_what_was_asked(server: Server, tmp_path: Path) -> None:
    asked = [0, 0]

    def ask() -> None:
        for body, place in (({"items": [{"text": "a b c"}] * 3}, 0), ({"items": 1}, 1)):
            httpx.post(f"{server.url}/v1/encode/{MODEL}", json=body, timeout=60)
            asked[place] += 1

    with prometheus(tmp_path, server.url.removeprefix("http://")) as client:
        until(client, "up == 1", ask)
        until(client, filled_in("rate(sie_http_requests_total[$__rate_interval]) > 0"), ask)
        for file in DASHBOARDS:
            if file.stem == "cluster":
                continue
            for query in queries(json.loads(file.read_text())):
                if not OF_FAULTS.intersection(re.findall(r"sie_\w+", query)):
                    until(client, filled_in(query), ask)
        until(client, f"sum(sie_items_total) == {3 * asked[0]}")
        until(client, f'sum(sie_http_errors_total{{code="INVALID_INPUT"}}) == {asked[1]}')
        for rule in RULES:
            results(client, rule["expr"])
        assert results(client, 'ALERTS{alertstate="firing"}') == []


def test_a_model_that_fails_to_load_and_a_server_that_is_gone_are_told_and_nothing_else(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "server" / "models" / "broken.yaml").write_text(
        "sie_id: org/broken\nhf_id: org/broken\ntasks: {encode: {dense: {dim: 4}}}\nprofiles: {default: {}}\n"
    )

    def ask() -> None:
        httpx.post(f"{server.url}/v1/encode/org/broken", json={"items": [{"text": "a"}]}, timeout=60)

    with prometheus(tmp_path, server.url.removeprefix("http://")) as client:
        until(client, "up == 1")
        until(client, 'ALERTS{alertname="SieLoadFails"}', ask)
        assert {each["metric"]["alertname"] for each in results(client, "ALERTS")} == {"SieLoadFails"}
        server.signal()
        assert server.wait() == 0
        until(client, 'ALERTS{alertname="SieDown", alertstate="pending"}')
