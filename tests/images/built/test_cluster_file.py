"""`compose.cluster.yaml` really brought up: a broker, a config service, two gateways, two workers with sidecars."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sie_sdk import SIEClient

from tests.images.built.tools import BASE, ROOT, VERSION, run

pytestmark = pytest.mark.timeout(3000)  # base, wheels and images are made on first use
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
ADDRESS = "127.0.0.2"
"""Beside what this machine serves on its first address."""
URLS = (f"http://{ADDRESS}:8080", f"http://{ADDRESS}:8081")
SERVICES = ("broker", "config", "gateway-1", "gateway-2", "worker-1", "sidecar-1", "worker-2", "sidecar-2")
RESTART_S = 120.0
SHOWN = (f"localhost/sie-gateway:{VERSION}", f"localhost/sie-server:{VERSION}-cpu-default")
"""As the file names them."""
KILL = """
import os, signal
for each in filter(str.isdigit, os.listdir("/proc")):
    command = open(f"/proc/{each}/cmdline").read()
    if "/opt/sie/bin/sie" in command and "init.py" not in command:
        os.kill(int(each), signal.SIGKILL)
"""


def compose(*arguments: str) -> None:
    """Run podman-compose on the cluster's file with the images of the tests."""
    variables = {"IMAGE_PREFIX": "localhost/", "IMAGE_VERSION": VERSION, "NATS_IMAGE": "localhost/sie-test-nats"}
    variables |= {"BIND": ADDRESS, "MEMORY_LIMIT": "1g", "CPU_LIMIT": "1", "SIE_ADMIN_TOKEN": "a"}
    variables |= {"SIE_CONFIG_READ_TOKEN": "r"}
    command = ("podman-compose", "-p", "sie-test", "-f", ROOT / "compose.cluster.yaml", *arguments)
    run(*command, variables={**os.environ, **variables})


def state(service: str) -> dict[str, object]:
    found: list[dict[str, object]] = json.loads(run("podman", "container", "inspect", f"sie-test_{service}_1"))
    return found[0]


@pytest.fixture(scope="module")
def cluster(gateway_image: str, default_image: str) -> Iterator[None]:
    """The whole file, up."""
    nats = Path(sys.executable).with_name("nats-server")
    if shutil.which("podman-compose") is None:
        pytest.skip("podman-compose: not installed (pip install podman-compose)")
    assert (gateway_image, default_image) == SHOWN
    broker = run("buildah", "from", "--pull-never", BASE)
    run("buildah", "copy", "-q", broker, nats, "/usr/bin/nats-server")
    run("buildah", "config", "--entrypoint", '["/usr/bin/nats-server"]', broker)
    run("buildah", "commit", "-q", "--rm", broker, "localhost/sie-test-nats")
    try:
        compose("up", "--detach")
        yield
    finally:
        compose("down", "--volumes")
        subprocess.run(["podman", "rmi", "localhost/sie-test-nats"], check=False, capture_output=True)


def encode(url: str) -> np.ndarray:
    with SIEClient(url, timeout_s=300) as client:
        dense = client.encode(MODEL, "hello world")["dense"]
    assert dense is not None
    return np.asarray(dense)


def wait_until_it_listens(url: str) -> None:
    end = time.monotonic() + RESTART_S
    while subprocess.run(["curl", "-sf", f"{url}/livez"], check=False, capture_output=True).returncode:
        assert time.monotonic() < end, f"{url} does not listen"
        time.sleep(0.1)


@pytest.mark.usefixtures("cluster")
def test_both_gateways_answer_alike() -> None:
    for url in URLS:
        wait_until_it_listens(url)
    one, two = map(encode, URLS)
    assert np.abs(one - two).max() < 1e-6


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("service", ["worker-1", "sidecar-2", "gateway-1"])
def test_what_is_killed_comes_back_while_the_rest_serves(service: str) -> None:
    assert state(service)["RestartCount"] == 0
    run("podman", "exec", f"sie-test_{service}_1", "/opt/sie/bin/python", "-I", "-c", KILL)
    assert encode(URLS[1]).shape == (384,)
    end = time.monotonic() + RESTART_S
    while state(service)["RestartCount"] != 1:
        assert time.monotonic() < end, f"{service} does not come back"
        time.sleep(0.1)
    wait_until_it_listens(URLS[0])
    assert encode(URLS[0]).shape == (384,)


@pytest.mark.usefixtures("cluster")
def test_all_of_it_ends_by_sigterm() -> None:
    compose("stop")
    ended = {service: state(service)["State"] for service in SERVICES}
    assert {service: each["ExitCode"] for service, each in ended.items()} == dict.fromkeys(SERVICES, 0)  # type: ignore[index]
