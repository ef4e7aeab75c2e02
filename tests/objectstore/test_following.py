"""A server whose models folder is in a real S3 gateway: it follows changes, loses no request, outlives the store."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from sie_objectstore.store import BucketStore

from tests.objectstore.proxy import Faults
from tests.server.asking import BOUND_S, dims, fake_config, hammering, until


@pytest.fixture
def server(store: BucketStore, start_server: Callable[..., Any]) -> Any:
    """A server that looks often, with the fake `test/steady` loaded."""
    write(store, "steady", 4)
    env = {"SIE_MODELS_DIR": store.url, "SIE_MODELS_POLL_S": "0.1", "SIE_PLUGINS": "fake,objectstore"}
    return start_server(env, ["--preload", "test/steady"])


def write(store: BucketStore, name: str, dim: int) -> None:
    store.write(f"{name}.yaml", fake_config(name, dim).encode())


def until_health(url: str, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    end = time.monotonic() + BOUND_S
    while not wanted(body := httpx.get(f"{url}/health").json()):
        assert time.monotonic() < end, body
    return body


def metric(url: str, name: str) -> float:
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))


def test_configs_are_followed_without_losing_a_request(server: Any, store: BucketStore) -> None:
    with hammering(server.url, "steady", clients=4) as answers:
        write(store, "added", 6)
        until(server.url, "added", 6)
        write(store, "steady", 5)
        until(server.url, "steady", 5)
        store.write("steady.yaml", b"sie_id: [")
        store.delete("added.yaml")
        until(server.url, "added", None)
        body = until_health(server.url, lambda body: bool(body["problems"]))
        assert dims(server.url, "steady") == 5
    assert set(answers) == {4, 5}
    assert (body["status"], httpx.get(f"{server.url}/readyz").text) == ("degraded", "ok")
    assert "steady.yaml" in body["problems"][0]
    assert metric(server.url, "sie_model_config_problems") == 1
    assert f"model config {store.url}/steady.yaml: not valid YAML" in server.log()
    assert "What it said before is served on." in server.log()
    write(store, "steady", 7)
    until(server.url, "steady", 7)
    until_health(server.url, lambda body: body["status"] == "healthy")


def test_a_store_that_goes_away_is_told_and_followed_again_when_it_returns(
    server: Any, store: BucketStore, proxy: Faults, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hammering(server.url, "steady", clients=2) as answers:
        proxy.gone = True
        body = until_health(server.url, lambda body: bool(body["problems"]))
        assert metric(server.url, "sie_models_folder_unfollowed") == 1
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3)
        write(BucketStore(store.url), "added", 6)
        assert dims(server.url, "added") is None
        proxy.gone = False
        until(server.url, "added", 6)
        until_health(server.url, lambda body: body["status"] == "healthy")
    assert set(answers) == {4}
    assert body["status"] == "degraded"
    assert body["problems"][0].startswith(f"SIE_MODELS_DIR: {store.url} cannot be reached")
    assert metric(server.url, "sie_models_folder_unfollowed") == 0
    assert server.log().count("the models folder is not followed, what was served stays") == 1
    assert "the models folder is followed again" in server.log()
