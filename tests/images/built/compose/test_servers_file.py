"""`compose.yaml` really brought up: two bundles beside one another, with one cache that a Hub of the tests fills."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sie_sdk import SIEClient

from tests.cache import fake_hub
from tests.cache.fake_hub import FakeHub
from tests.clients.conftest import ClientEnvironment
from tests.images.built.compose.composing import (
    ADDRESS,
    Composed,
    composed,
    encode,
    vectors_by_all_clients,
)
from tests.images.built.programs import EXTRA_HOSTS, HOST
from tests.images.built.tools import ROOT, wait_until, wait_until_it_answers
from tests.pytorch.bare import minilm

pytestmark = pytest.mark.timeout(3000)  # base, wheels and images are made on first use
MODEL = "BAAI/bge-small-en-v1.5"
"""Served by both bundles and brought by none; its files are those of the embedded model here."""
BUNDLES = {"default": f"http://{ADDRESS}:8080", "gliner": f"http://{ADDRESS}:8082"}
LONG = ["a river in the city " * 40] * 64
"""Takes a CPU some seconds."""


@pytest.fixture(scope="module")
def hub() -> Iterator[FakeHub]:
    with fake_hub.run_hub("0.0.0.0") as served:
        served.files[MODEL] = fake_hub.files_of(minilm())
        yield served


@pytest.fixture(scope="module")
def servers(
    default_image: str, gliner_image: str, hub: FakeHub, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Composed]:
    """Both profiles, up and ready."""
    more = tmp_path_factory.mktemp("compose") / "hosts.yaml"
    more.write_text(
        "services:\n" + "".join(f"  {name}: {{extra_hosts: {json.dumps(EXTRA_HOSTS)}}}\n" for name in BUNDLES)
    )
    address = hub.url.replace("0.0.0.0", HOST)
    limits = {"MEMORY_LIMIT": "1g", "CPU_LIMIT": "1"}
    with composed(ROOT / "compose.yaml", more, profiles=list(BUNDLES), HF_ENDPOINT=address, **limits) as made:
        for url in BUNDLES.values():
            wait_until_it_answers(f"{url}/readyz")
        yield made


@pytest.mark.usefixtures("servers")
def test_two_bundles_that_want_a_model_at_once_fetch_it_once(hub: FakeHub) -> None:
    with ThreadPoolExecutor() as pool:
        one, two = pool.map(lambda url: encode(url, MODEL), BUNDLES.values())
    assert np.abs(one - two).max() < 1e-6
    assert [part for part in hub.parts if part.startswith("model.safetensors")] == ["model.safetensors"]


@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize("name", BUNDLES)
def test_each_answers_every_client_alike(
    name: str, published_sdk: ClientEnvironment, openai_clients: ClientEnvironment
) -> None:
    found = vectors_by_all_clients(BUNDLES[name], MODEL, published_sdk, openai_clients)
    assert np.ptp(found, axis=0).max() < 1e-6


def test_a_server_that_is_killed_comes_back_and_takes_weights_from_the_cache(servers: Composed, hub: FakeHub) -> None:
    before = len(hub.parts)
    servers.kill("default")
    assert encode(BUNDLES["gliner"], MODEL).shape == (384,)
    servers.wait_for_restart("default")
    wait_until_it_answers(f"{BUNDLES['default']}/readyz")
    assert encode(BUNDLES["default"], MODEL).shape == (384,)
    assert len(hub.parts) == before


def test_sigterm_answers_what_is_in_flight_and_ends_with_0(servers: Composed) -> None:
    with ThreadPoolExecutor() as pool, SIEClient(BUNDLES["default"], timeout_s=60) as client:
        answer = pool.submit(client.encode, MODEL, LONG)
        wait_until(lambda: in_flight(BUNDLES["default"]) == 1, "a request is in flight")
        servers.compose("stop")
        assert len(answer.result()) == len(LONG)
    assert {name: servers.state(name)["State"]["ExitCode"] for name in BUNDLES} == dict.fromkeys(BUNDLES, 0)


def in_flight(url: str) -> float:
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as reply:
        found = re.search(r"^sie_requests_in_flight (\S+)$", reply.read().decode(), re.MULTILINE)
    assert found
    return float(found[1])
