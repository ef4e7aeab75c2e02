"""A server whose models folder is in a real S3 gateway: it follows changes, loses no request, outlives the store."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import httpx
import pytest
from sie_objectstore.store import BucketStore

from tests.conftest import Server, run_server
from tests.objectstore.conftest import variables
from tests.objectstore.proxy import Faults, run_proxy
from tests.objectstore.seaweed import BUCKET
from tests.server.asking import BOUND_S, dims, fake_config, hammering, until


class Site(NamedTuple):
    """A server, the store it follows, and what lies between them alone."""

    server: Server
    store: BucketStore
    proxy: Faults

    @property
    def url(self) -> str:
        return self.server.url


@pytest.fixture(scope="module")
def site(s3: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server that looks often, with the fake `test/steady` loaded."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in variables(s3).items():
            environment.setenv(name, value)
        store = BucketStore(f"s3://{BUCKET}/followed")
    write(store, "steady", 4)
    with run_proxy(s3) as proxy:
        own = {"SIE_MODELS_DIR": store.url, "SIE_MODELS_POLL_S": "0.1", "SIE_PLUGINS": "fake,objectstore"}
        env = {**variables(proxy.url), **own}
        with run_server(tmp_path_factory.mktemp("following"), env, ["--preload", "test/steady"]) as server:
            yield Site(server, store, proxy)


def write(store: BucketStore, name: str, dim: int) -> None:
    store.write(f"{name}.yaml", fake_config(name, dim).encode())


def until_health(url: str, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    end = time.monotonic() + BOUND_S
    while not wanted(body := httpx.get(f"{url}/health", timeout=60).json()):
        assert time.monotonic() < end, body
    return body


def metric(url: str, name: str) -> float:
    lines = httpx.get(f"{url}/metrics", timeout=60).text.splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))


def test_configs_are_followed_without_losing_a_request(site: Site) -> None:
    with hammering(site.url, "steady", clients=4) as answers:
        write(site.store, "added", 6)
        until(site.url, "added", 6)
        write(site.store, "steady", 5)
        until(site.url, "steady", 5)
        site.store.write("steady.yaml", b"sie_id: [")
        site.store.delete("added.yaml")
        until(site.url, "added", None)
        body = until_health(site.url, lambda body: bool(body["problems"]))
        assert dims(site.url, "steady") == 5
    assert set(answers) == {4, 5}
    assert (body["status"], httpx.get(f"{site.url}/readyz", timeout=60).text) == ("degraded", "ok")
    assert "steady.yaml" in body["problems"][0]
    assert metric(site.url, "sie_model_config_problems") == 1
    site.server.wait_for_log(re.escape(f"model config {site.store.url}/steady.yaml: not valid YAML"))
    site.server.wait_for_log(r"What it said before is served on\.")
    write(site.store, "steady", 4)
    until(site.url, "steady", 4)
    until_health(site.url, lambda body: body["status"] == "healthy")


def test_a_store_that_goes_away_is_told_and_followed_again_when_it_returns(site: Site) -> None:
    with hammering(site.url, "steady", clients=2) as answers:
        site.proxy.gone = True
        body = until_health(site.url, lambda body: bool(body["problems"]))
        assert metric(site.url, "sie_models_folder_unfollowed") == 1
        write(site.store, "late", 6)
        assert dims(site.url, "late") is None
        site.proxy.gone = False
        until(site.url, "late", 6)
        until_health(site.url, lambda body: body["status"] == "healthy")
    assert set(answers) == {4}
    assert body["status"] == "degraded"
    assert body["problems"][0].startswith(f"SIE_MODELS_DIR: {site.store.url} cannot be reached")
    assert metric(site.url, "sie_models_folder_unfollowed") == 0
    site.server.wait_for_log("the models folder is followed again")
    assert site.server.log().count("the models folder is not followed, what was served stays") == 1
