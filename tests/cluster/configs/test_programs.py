"""Gateways, a worker and a config service as their users start them, at a broker where each has a user of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from anyio.from_thread import start_blocking_portal
from sie_cluster.queue.access import CONFIG, GATEWAY, WORKER, accesses
from sie_cluster.settings import ClusterSettings, queue_variables
from sie_sdk import SIEClient

from sie_core.contracts import LocalBroker
from sie_core.defaults import BUILTINS
from sie_core.plugins import discover
from sie_core.serving.listening import reserve
from tests.cluster.configs.test_cut import line_to
from tests.conftest import Server, run_server

BOUND_S = 30.0
ADMIN = {"Authorization": "Bearer the-admin"}
TOKENS = {"SIE_ADMIN_TOKEN": "the-admin", "SIE_CONFIG_READ_TOKEN": "the-follower"}
MODEL = {
    "sie_id": "acme/encoder",
    "hf_id": "acme/encoder",
    "weights": {"model_type": "bert", "architectures": ["BertModel"]},
    "profiles": {"default": {}},
}
FAKE = {
    "sie_id": "acme/fake",
    "package_backed": True,
    "tasks": {"encode": {"dense": {"dim": 8}}},
    "profiles": {"default": {"adapter_path": "fake"}},
}
SIE = (str(Path(sys.executable).with_name("sie")),)
POLL_MS = "500"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    local = discover(ClusterSettings(), BUILTINS).queue_transports["nats"].local
    assert local is not None
    broker = local(tmp_path, accesses("_default"), 1)
    with (tmp_path / "broker.log").open("wb") as log, subprocess.Popen(broker.commands[0], stderr=log) as process:
        try:
            yield broker
        finally:
            process.kill()


def until(holds: Callable[[], Any]) -> float:
    """Wait, within a bound; return the seconds it took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < BOUND_S
        time.sleep(0.02)
    return time.monotonic() - began


def get(server: Server, path: str) -> httpx.Response:
    return httpx.get(f"{server.url}{path}", timeout=BOUND_S)


def held_hash(worker: Server) -> str:
    """The hash of the configs that an adapter process has; its sidecar tells a URL of its own."""
    with SIEClient(worker.wait_for_log(r"sie_core\.worker: listening on (http\S+)").group(1)) as client:
        return str(next(iter(client.watch(mode="worker")))["bundle_config_hash"])


@pytest.mark.timeout(300)  # five programs start, one after the other
def test_gateways_and_workers_follow_and_who_starts_while_the_service_is_away_waits_for_it(
    tmp_path: Path, broker: LocalBroker
) -> None:
    def followed(url: str) -> dict[str, str | None]:
        return {
            "SIE_CONFIG_SERVICE_URL": url,
            "SIE_CONFIG_READ_TOKEN": "the-follower",
            "SIE_WORKER_CONFIG_POLL_INTERVAL_MS": POLL_MS,
            "SIE_MODELS_DIR": None,
        }

    def service(store: str) -> AbstractContextManager[Server]:
        env = {
            **TOKENS,
            **queue_variables(broker.url, broker.logins[CONFIG]),
            "SIE_CONFIG_STORE_DIR": str(tmp_path / store),
            "SIE_BUNDLES_DIR": str(bundle.parent.parent),
        }
        return run_server(tmp_path / "config", env, ("--port", str(port)), command=("config", "serve"))

    def gateway(name: str, url: str, *, ready: bool = True) -> AbstractContextManager[Server]:
        env = {**queue_variables(broker.url, broker.logins[GATEWAY]), **followed(url)}
        return run_server(tmp_path / name, env, command=("gateway",), ready=ready)

    @contextmanager
    def worker(url: str, broker_port: int) -> Iterator[Server]:
        """The two processes of one; the sidecar alone knows broker and config service."""
        shared = {"SIE_PLUGINS": "fake,nats", "SIE_IPC_SOCKET_PATH": str(tmp_path / "ipc")}
        of_sidecar = {
            **os.environ,
            **shared,
            **{name: value for name, value in followed(url).items() if value is not None},
            **queue_variables(f"nats://127.0.0.1:{broker_port}", broker.logins[WORKER]),
            "SIE_WORKER_METRICS_PORT": "0",
        }
        with run_server(tmp_path / "worker", {**shared, "SIE_MODELS_DIR": None}, command=("worker",)) as process:
            with (tmp_path / "sidecar.log").open("wb") as log:
                sidecar = subprocess.Popen([*SIE, "sidecar"], env=of_sidecar, stdout=log, stderr=log)
            try:
                yield process
            finally:
                sidecar.terminate()
                sidecar.wait(BOUND_S)

    bundle = tmp_path / "bundles/default/bundle.yaml"
    bundle.parent.mkdir(parents=True)
    bundle.write_text("{default: true, plugins: [fake, pytorch]}")
    with ExitStack() as stack:
        _, port = stack.enter_context(reserve("127.0.0.1", 0))  # kept while the service is away
        config = stack.enter_context(service("store"))
        first = stack.enter_context(gateway("first", config.url))
        with httpx.Client(base_url=f"{config.url}/v1/configs", headers=ADMIN, timeout=BOUND_S) as client:
            assert client.post("/models", json=MODEL).json()["warnings"] == []
            took = until(lambda: get(first, "/v1/models/acme/encoder").status_code == 200)
            print(f"a gateway follows a new model after {took:.2f} s")
            assert get(first, "/v1/configs/epoch").json() == client.get("/epoch").json()
            status = get(first, "/v1/configs/models/acme/encoder/status").json()
            assert (status["source"], status["bundles"][0]["total_eligible_workers"]) == ("api", 0)
            assert 'outcome="applied"} 1.0' in get(first, "/metrics").text
            with (
                start_blocking_portal() as portal,
                portal.wrap_async_context_manager(line_to(urlsplit(broker.url).port or 0)) as line,
                worker(config.url, line.port) as cut_off,
            ):
                assert client.post("/models", json=FAKE).json()["warnings"] == []
                body = {"items": [{"text": "a text"}]}
                path = f"{first.url}/v1/encode/acme/fake"
                until(lambda: httpx.post(path, json=body, timeout=BOUND_S).status_code == 200)
                portal.call(line.open.clear)
                added = {**MODEL, "profiles": {"default": {}, "q": {"extends": "default"}}}
                assert client.post("/models", json=added).json()["warnings"] == []
                hash_ = client.get("/export").json()["bundle_config_hashes"]["default"]
                took = until(lambda: held_hash(cut_off) == hash_)
                print(f"a worker that hears of nothing follows after {took:.2f} s")
                portal.call(line.open.set)
        config.process.kill()
        config.process.wait()
        assert get(first, "/v1/models/acme/encoder").status_code == 200
        second = stack.enter_context(gateway("second", config.url, ready=False))
        second.wait_for_log("config service is not followed")
        assert get(second, "/readyz").status_code == 503
        assert get(second, "/v1/models/acme/encoder").status_code == 503
        stack.enter_context(service("empty"))  # the broker keeps the configs
        for each in (first, second):
            until(lambda each=each: get(each, "/readyz").status_code == 200)
            assert get(each, "/v1/models/acme/encoder").status_code == 200
