"""A real Prometheus that scrapes a real server at work: every query of the dashboards returns data."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from bisect import bisect_left
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from sie_kit.server import serving

from sie_core.api.http.metrics import SECONDS
from sie_core.engine.timeouts import DEFAULT_TIMEOUTS
from tests.bench.clients.closed_loop import Round, drive
from tests.cache.fake_hub import FILES, run_hub
from tests.conftest import Server, run_server
from tests.observability.test_rules import DASHBOARDS, FOLDER, RULES, queries

MODEL = "sie-fake/embedder"
LONGEST_S = 60
ROUTE = "/v1/encode/{model:path}"
OF_FAULTS = {
    "sie_model_evictions_total", "sie_model_unloads_total", "sie_model_cold_start_seconds_bucket",
    "sie_weight_tier_hits_total",
}  # fmt: skip
"""What a server without faults and with all models loaded does not tell."""
OF_REQUESTS = {"SieErrorBudgetFast", "SieErrorBudgetSlow"}
"""Alerts on requests that fail, whatever made them fail: they come beside the alert on the cause."""

pytestmark = pytest.mark.timeout(300)


@contextmanager
def prometheus(folder: Path, *urls: str) -> Iterator[httpx.Client]:
    """Run a Prometheus that scrapes servers each second, with our rules."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed")
    targets = [url.removeprefix("http://") for url in urls]
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    shutil.copy(FOLDER / "rules.yaml", folder)
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yaml]\n"
        f"scrape_configs: [{{job_name: sie, static_configs: [{{targets: {targets}}}]}}]\n"
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
    query = query.replace("$job", "sie").replace("$__rate_interval", "30s")
    return re.sub(r"\$\w+", ".*", query)


def names_of_faults(query: str) -> set[str]:
    return OF_FAULTS.intersection(re.findall(r"sie_\w+", query))


def alerts(client: httpx.Client) -> set[tuple[str, str]]:
    """Return the alerts that are pending or firing, by the URL of their server."""
    told = [each["metric"] for each in results(client, "ALERTS")]
    return {("http://" + each["instance"], each["alertname"]) for each in told if each["alertname"] not in OF_REQUESTS}


def config(folder: Path, name: str, hf_id: str = "", **loadtime: object) -> str:
    """Write the config of a fake; `hf_id` is a repository that a load fetches first."""
    told = {
        "sie_id": f"test/{name}",
        **({"hf_id": hf_id} if hf_id else {"package_backed": True}),
        "tasks": {"encode": {"dense": {"dim": 8}}},
        "max_sequence_length": 64,
        "profiles": {
            "default": {"adapter_path": "fake", "max_batch_tokens": 64, "adapter_options": {"loadtime": loadtime}}
        },
    }
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(told))
    return f"test/{name}"


def encode(url: str, model: str) -> int:
    body = {"items": [{"text": "five words of a text"}]}
    return httpx.post(f"{url}/v1/encode/{model}", json=body, timeout=60, headers={"Prefer": "wait=60"}).status_code


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

    with prometheus(tmp_path, server.url) as client:
        until(client, "up == 1", ask)
        until(client, filled_in("rate(sie_http_requests_total[$__rate_interval]) > 0"), ask)
        for file in DASHBOARDS:
            if file.stem in ("cluster", "autoscaling"):
                continue
            for query in queries(json.loads(file.read_text())):
                if not names_of_faults(query):
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

    with prometheus(tmp_path, server.url) as client:
        until(client, "up == 1")
        until(client, 'ALERTS{alertname="SieLoadFails"}', ask)
        assert alerts(client) == {(server.url, "SieLoadFails")}
        server.signal()
        assert server.wait() == 0
        until(client, 'ALERTS{alertname="SieDown", alertstate="pending"}')


def test_faults_give_data_to_what_only_they_move_and_each_raises_its_own_alert(tmp_path: Path) -> None:
    (hold := tmp_path / "hold").touch()
    fault, mb = tmp_path / "fault", 10**6
    big = [config(fault, f"big{each}", memory_bytes=60 * mb) for each in (1, 2)]
    short, found = config(fault, "short", oom_every=2), config(fault, "found", "org/small")
    huge = config(tmp_path / "full", "huge", "org/large")
    held = [config(tmp_path / folder, "held", run_hold=str(hold)) for folder in ("hung", "busy")]
    with ExitStack() as stack:
        hub = stack.enter_context(run_hub())
        hub.files = {"org/small": FILES, "org/large": {**FILES, "model.safetensors": bytes(3 * 2**20)}}
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("HF_ENDPOINT", hub.url)
        own = {"plugins": ("fake",), "hf_fallback": True}
        of_fault = {"device": "fake", "memory_limit_bytes": 100 * mb, "preload_models": (short,)}
        faulty, full, hung, busy = (
            stack.enter_context(
                serving(models_dir=tmp_path / name, local_cache=tmp_path / "cache" / name, **own, **more)
            )
            for name, more in (
                ("fault", of_fault),
                ("full", {"disk_cache_max_bytes": 2**20}),
                ("hung", {"preload_models": held[:1], "timeouts": replace(DEFAULT_TIMEOUTS, stall_s=0.5)}),
                ("busy", {"preload_models": held[1:], "max_queued_cost": 1}),
            )
        )
        client = stack.enter_context(prometheus(tmp_path, faulty.url, full.url, hung.url, busy.url))
        threads = stack.enter_context(ThreadPoolExecutor(16))
        stack.callback(hold.unlink)
        until(client, "count(up == 1) == 4")
        until(client, 'sie_batch_failures_total{reason="out_of_memory"} == 0')
        waiting: set[Future[int]] = {threads.submit(encode, hung.url, held[0])}

        def ask() -> None:
            for model in (*big, short, found):
                assert encode(faulty.url, model) == 200
            assert encode(full.url, huge) == 502
            waiting.difference_update([each for each in waiting if each.done()])
            if len(waiting) < 8:
                waiting.add(threads.submit(encode, busy.url, held[1]))

        wanted = {
            (faulty.url, "SieOutOfMemory"),
            (full.url, "SieLoadFails"),
            (hung.url, "SieNotLive"),
            (busy.url, "SieQueueFull"),
        }
        for _, name in wanted:
            until(client, f'count_over_time(ALERTS{{alertname="{name}"}}[1m]) > 2', ask)
        assert alerts(client) == wanted
        asked = [query for file in DASHBOARDS for query in queries(json.loads(file.read_text()))]
        for query in filter(names_of_faults, asked):
            until(client, filled_in(query), ask)
        for rule in RULES:
            results(client, rule["expr"])


async def test_counts_and_quantiles_are_those_of_the_load_generator(server: Server, tmp_path: Path) -> None:
    url = httpx.URL(server.url)
    texts = [["word " * (1 + number % 7)] * (1 + number % 3) for number in range(200)]
    bodies = [json.dumps({"items": [{"text": text} for text in each]}).encode() for each in texts]
    head = f"POST /v1/encode/{MODEL} HTTP/1.1\r\nHost: {url.host}\r\nContent-Type: application/json\r\nContent-Length: "
    requests = [f"{head}{len(body)}\r\n\r\n".encode() + body for body in bodies]
    seen = await drive(url.host, url.port or 80, Round(requests, least=len(requests)), clients=4, limit_s=60)
    assert {answer.status for answer in seen.answers} == {200}
    with prometheus(tmp_path, server.url) as client:
        until(client, f'sie_http_requests_total{{route="{ROUTE}", status="200"}} == {len(texts)}')
        until(client, f'sum(sie_requests_total{{operation="encode", outcome="ok"}}) == {len(texts)}')
        until(client, f"sum(sie_items_total) == {sum(map(len, texts))}")
        words = sum(len(text.split()) for each in texts for text in each)
        until(client, f'sum(sie_input_tokens_total{{operation="encode"}}) == {words}')
        for share in (0.5, 0.99):
            query = f'histogram_quantile({share}, sie_http_request_seconds_bucket{{route="{ROUTE}"}})'
            told = float(until(client, query)[0]["value"][1])
            own = sorted(answer.seconds for answer in seen.answers)[int(share * len(texts))]
            assert abs(bisect_left(SECONDS, told) - bisect_left(SECONDS, own)) <= 1, (share, told, own)
