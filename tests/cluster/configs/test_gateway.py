"""A gateway tells of configs, bundles and workers from memory, writes nothing, and has no 404 before it knows."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import yaml

from tests.cluster.configs.conftest import settings_of
from tests.cluster.configs.gateway import Gateway, gateway
from tests.cluster.configs.registries import text_of
from tests.cluster.configs.service import SmallService

DOWN = "http://127.0.0.1:9"


@pytest.fixture
async def one(service: SmallService, url: str) -> AsyncIterator[Gateway]:
    async with gateway(settings_of(url)) as one:
        await one.until_epoch(5)
        yield one


async def test_it_tells_of_configs_and_bundles(one: Gateway, service: SmallService) -> None:
    assert (await one.get("/models"))["models"] == [
        {"model_id": "org/a", "profiles": ["default"], "source": "api"},
        {"model_id": "other/b", "profiles": ["default"], "source": "api"},
    ]
    assert (await one.client.get("/v1/configs/models/org/a")).text == service.texts["org/a"]
    assert (await one.get("/epoch"))["bundle_config_hashes_hash"] == service.registry.config_hashes_hash
    bundle = await one.client.get("/v1/configs/bundles/other")
    assert yaml.safe_load(bundle.text)["adapters"] == ["pkg.second"]
    resolved = await one.client.post("/v1/configs/resolve", json={"model": "org/a"})
    assert resolved.json()["compatible_bundles"] == ["default", "other"]
    for path in ("/models/org/none", "/models/org/none/status", "/bundles/none"):
        assert (await one.get(path, 404))["error"]["error"].endswith("_not_found")
    assert len(service.asked) <= 4


async def test_bundles_count_the_workers_that_take_work(one: Gateway) -> None:
    await one.beat("w1", "default", "x", 5)
    await one.beat("w2", "default", "y", 5)
    bundles = {each["bundle_id"]: each["connected_workers"] for each in (await one.get("/bundles"))["bundles"]}
    assert bundles == {"default": 2, "other": 0}
    model = (await one.client.get("/v1/models/org/a")).json()
    assert (model["bundles"], model["workers"]) == (["default", "other"], 2)


async def test_the_status_of_a_model_follows_what_workers_say_they_have(one: Gateway, service: SmallService) -> None:
    status = await one.get("/models/org/a/status")
    assert (status["all_bundles_acked"], status["no_bundles"], status["config_epoch"]) == (False, False, 5)
    await one.beat("w1", "default", service.registry.config_hashes["default"], 5)
    status = await one.get("/models/org/a/status")
    assert status["all_bundles_acked"]
    assert status["bundles"][0] == {
        "bundle_id": "default",
        "expected_bundle_config_hash": service.registry.config_hashes["default"],
        "total_eligible_workers": 1,
        "acked_workers": ["w1"],
        "pending_workers": [],
        "acked": True,
    }
    # The tasks of a config do not count for the hash, so that its epoch has to tell.
    await service.tell(one.transport, "org/a", text_of("org/a", tasks="{encode: {dense: {dim: 9}}}"))
    await one.until_epoch(6)
    status = await one.get("/models/org/a/status")
    assert (status["all_bundles_acked"], status["bundles"][0]["pending_workers"]) == (False, ["w1"])
    assert (await one.get("/models/other/b/status"))["bundles"][0]["bundle_id"] == "other"
    await service.tell(one.transport, "org/a", text_of("org/a", hf_revision="main"))
    await one.until_epoch(7)
    await one.beat("w1", "default", service.registry.config_hashes["default"], 7)
    assert (await one.get("/models/org/a/status"))["all_bundles_acked"]


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/models"), ("PUT", "/models/org/a"), ("DELETE", "/models/org/a")]
)
async def test_writing_is_refused_with_the_url_of_the_config_service(
    one: Gateway, url: str, method: str, path: str
) -> None:
    response = await one.client.request(method, f"/v1/configs{path}", content=text_of("org/a"))
    assert (response.status_code, response.headers["Allow"]) == (405, "GET")
    assert f"{method} {url}/v1/configs{path}" in response.json()["error"]["message"]


async def test_a_model_added_and_removed_is_known_at_once(one: Gateway, service: SmallService) -> None:
    await service.tell(one.transport, "org/new", text_of("org/new"))
    await one.until_epoch(6)
    assert (await one.client.get("/v1/models/org/new")).status_code == 200
    await service.tell(one.transport, "org/new", None)
    await one.until_epoch(7)
    assert (await one.client.get("/v1/models/org/new")).status_code == 404


async def test_without_the_service_it_is_not_ready_and_answers_503_never_404() -> None:
    async with gateway(settings_of(DOWN)) as one:
        ready = await one.client.get("/readyz")
        assert ready.status_code == 503
        assert "model configs" in ready.text
        for path in ("/v1/models", "/v1/models/org/a", "/v1/configs/models", "/v1/configs/models/org/a/status"):
            response = await one.client.get(path)
            assert (response.status_code, response.json()["error"]["code"]) == (503, "QUEUE_UNAVAILABLE"), path
        encode = await one.client.post("/v1/encode/org/a", json={"items": [{"text": "a"}]})
        assert encode.status_code == 503
        assert "Retry-After" in encode.headers
