"""`compose.cluster.yaml` really brought up: a broker, a config service, two gateways, two workers with sidecars."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.clients.conftest import ClientEnvironment
from tests.images.built.compose.composing import (
    ADDRESS,
    Composed,
    composed,
    encode,
    vectors_by_all_clients,
)
from tests.images.built.programs import BASE, RUNNER, run
from tests.images.built.tools import ROOT, wait_until_it_answers

pytestmark = pytest.mark.timeout(3000)  # base, wheels and images are made on first use
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
URLS = (f"http://{ADDRESS}:8080", f"http://{ADDRESS}:8081")
SERVICES = ("broker", "config", "gateway-1", "gateway-2", "worker-1", "sidecar-1", "worker-2", "sidecar-2")
POSTED = "acme/small"
"""Served by the weights that the image brings for another name."""
POST = f"""
import json, urllib.request
model = {{"sie_id": {POSTED!r}, "hf_id": {MODEL!r}, "profiles": {{"default": {{}}}},
         "weights": {{"model_type": "bert", "architectures": ["BertModel"]}}}}
headers = {{"Authorization": "Bearer a", "Content-Type": "application/json"}}
url = "http://127.0.0.1:8080/v1/configs/models"
urllib.request.urlopen(urllib.request.Request(url, json.dumps(model).encode(), headers), timeout=60).read()
"""
NATS = "localhost/sie-test-nats"
CONTAINERFILE = f'FROM {BASE}\nCOPY nats-server /usr/bin/\nENTRYPOINT ["/usr/bin/nats-server"]\n'


@pytest.fixture(scope="module")
def cluster(gateway_image: str, default_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composed]:
    """The whole file, up."""
    context = tmp_path_factory.mktemp("nats")
    shutil.copy(Path(sys.executable).with_name("nats-server"), context)
    (context / "Containerfile").write_text(CONTAINERFILE)
    run(RUNNER, "build", "--tag", NATS, "--file", context / "Containerfile", context)
    limits = {"MEMORY_LIMIT": "1g", "CPU_LIMIT": "1"}
    tokens = {"SIE_ADMIN_TOKEN": "a", "SIE_CONFIG_READ_TOKEN": "r"}
    try:
        with composed(ROOT / "compose.cluster.yaml", NATS_IMAGE=NATS, **limits, **tokens) as made:
            yield made
    finally:
        subprocess.run([RUNNER, "rmi", NATS], check=False, capture_output=True)


@pytest.mark.usefixtures("cluster")
def test_both_gateways_answer_every_client_alike(
    published_sdk: ClientEnvironment, openai_clients: ClientEnvironment
) -> None:
    for url in URLS:
        wait_until_it_answers(f"{url}/livez")
    found = np.concatenate([vectors_by_all_clients(url, MODEL, published_sdk, openai_clients) for url in URLS])
    assert np.ptp(found, axis=0).max() < 1e-6


def test_a_model_that_is_posted_to_the_config_service_is_served_by_the_workers(cluster: Composed) -> None:
    """Its sidecar alone tells a worker of it."""
    run(RUNNER, "exec", cluster.container("config"), "/opt/sie/bin/python", "-I", "-c", POST)
    wait_until_it_answers(f"{URLS[0]}/v1/models/{POSTED}")
    assert encode(URLS[0], POSTED).shape == (384,)


@pytest.mark.parametrize("service", ["worker-1", "sidecar-2", "gateway-1"])
def test_what_is_killed_comes_back_while_the_rest_serves(cluster: Composed, service: str) -> None:
    assert cluster.state(service)["RestartCount"] == 0
    cluster.kill(service)
    assert encode(URLS[1], MODEL).shape == (384,)
    cluster.wait_for_restart(service)
    wait_until_it_answers(f"{URLS[0]}/livez")
    assert encode(URLS[0], MODEL).shape == (384,)


def test_all_of_it_ends_by_sigterm(cluster: Composed) -> None:
    cluster.compose("stop")
    ended = {service: cluster.state(service)["State"]["ExitCode"] for service in SERVICES}
    assert ended == dict.fromkeys(SERVICES, 0)
