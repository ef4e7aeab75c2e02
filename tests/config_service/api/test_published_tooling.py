"""The requests of published config tooling: status and shape of each answer."""

from __future__ import annotations

import json

import pytest
import yaml
from sie_bundle.bundles.hashes import bundle_config_hash

from tests.config_service.api.serving import BASE, TINY, Served

YAML = yaml.safe_dump(TINY, sort_keys=False)
JSON = json.dumps(TINY)


@pytest.mark.parametrize("body", [YAML, JSON])
@pytest.mark.parametrize("content_type", ["application/x-yaml", "application/json", "text/plain"])
async def test_a_config_is_posted_in_yaml_or_json_whatever_its_content_type(
    served: Served, body: str, content_type: str
) -> None:
    posted = await served.client.post("/v1/configs/models", content=body, headers={"Content-Type": content_type})
    assert posted.status_code == 201
    told = posted.json()
    assert {name: told[name] for name in told if name not in ("epoch", "router_id")} == {
        "model_id": "acme/tiny",
        "created_profiles": ["default"],
        "existing_profiles_skipped": [],
        "warnings": [],
        "routable_bundles_by_profile": {"default": ["fakes"]},
    }
    assert told["router_id"] == "sie-config-a"
    again = await served.client.post("/v1/configs/models", content=body)
    assert again.status_code == 200
    assert again.json()["existing_profiles_skipped"] == ["default"]
    assert (await served.client.get("/v1/configs/epoch")).json()["epoch"] == told["epoch"] == 1


async def test_profiles_are_appended_and_fields_that_are_left_out_stay(served: Served) -> None:
    await served.client.post("/v1/configs/models", content=YAML)
    more = {"sie_id": "acme/tiny", "profiles": {"q": {"extends": "default", "adapter_options": {"runtime": {"a": 1}}}}}
    posted = await served.client.post("/v1/configs/models", json=more)
    assert (posted.status_code, posted.json()["created_profiles"]) == (201, ["q"])
    told = await served.client.get("/v1/configs/models/acme/tiny")
    assert told.headers["content-type"].startswith("application/x-yaml")
    assert yaml.safe_load(told.text) == {**TINY, "profiles": {**TINY["profiles"], **more["profiles"]}}
    variant = yaml.safe_load((await served.client.get("/v1/configs/models/acme/tiny:q")).text)
    assert variant["sie_id"] == "acme/tiny:q"


async def test_a_profile_with_another_body_is_a_conflict_and_nothing_changes(served: Served) -> None:
    await served.client.post("/v1/configs/models", content=YAML)
    kept = served.kept()
    other = {**TINY, "profiles": {"default": {"adapter_path": "fake", "max_batch_tokens": 1}}}
    refused = await served.client.post("/v1/configs/models", json=other)
    assert refused.status_code == 409
    error = refused.json()["error"]
    assert (error["code"], error["error"]) == ("CONTENT_CONFLICT", "content_conflict")
    assert error["conflicting_profiles"] == ["default"]
    assert served.kept() == kept


async def test_a_config_is_replaced_and_removed(served: Served) -> None:
    whole = {name: value for name, value in TINY.items() if name != "sie_id"}
    put = await served.client.put("/v1/configs/models/acme/tiny", json=whole)
    assert put.status_code == 200
    told = put.json()
    assert (told["model_id"], told["replaced"], told["unchanged"], told["affected_bundles"], told["warnings"]) == (
        *("acme/tiny", True, False, ["fakes"], []),
    )
    again = (await served.client.put("/v1/configs/models/acme/tiny", json=whole)).json()
    assert (again["replaced"], again["unchanged"], again["epoch"]) == (False, True, 1)
    other = await served.client.put("/v1/configs/models/acme/tiny", json={**TINY, "sie_id": "acme/other"})
    assert (other.status_code, other.json()["error"]["error"]) == (400, "model_id_mismatch")
    removed = await served.client.delete("/v1/configs/models/acme/tiny")
    told = removed.json()
    assert removed.status_code == 200
    assert (told["deleted"], told["unchanged"], told["fallback"], told["epoch"]) == (True, False, None, 2)
    assert told["distribution"] == "epoch_export"
    missing = await served.client.get("/v1/configs/models/acme/tiny")
    assert (missing.status_code, missing.json()["error"]["error"]) == (404, "model_not_found")
    assert (await served.client.delete("/v1/configs/models/acme/tiny")).json()["unchanged"] is True


async def test_a_removed_change_of_a_shipped_model_falls_back_to_what_was_shipped(served: Served) -> None:
    changed = {**yaml.safe_load(BASE), "max_sequence_length": 7}
    assert (await served.client.put("/v1/configs/models/acme/base", json=changed)).status_code == 200
    sources = {each["model_id"]: each["source"] for each in await listed(served)}
    assert sources == {"acme/base": "api", "acme/base:q": "api"}
    removed = (await served.client.delete("/v1/configs/models/acme/base")).json()
    assert (removed["deleted"], removed["fallback"]) == (True, "filesystem")
    assert (await served.client.get("/v1/configs/models/acme/base")).text == BASE
    assert {each["source"] for each in await listed(served)} == {"filesystem"}


async def listed(served: Served) -> list[dict[str, object]]:
    found: list[dict[str, object]] = (await served.client.get("/v1/configs/models")).json()["models"]
    return found


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_a_retried_key_is_answered_as_the_first_time_and_not_for_another_request(
    served: Served, method: str
) -> None:
    path = "/v1/configs/models" + ("" if method == "POST" else "/acme/tiny")
    content = b"" if method == "DELETE" else YAML.encode()
    headers = {"Idempotency-Key": "0b5e"}
    if method == "DELETE":
        await served.client.post("/v1/configs/models", content=YAML)
    first = await served.client.request(method, path, content=content, headers=headers)
    await served.client.request("DELETE" if method != "DELETE" else "POST", _path(method), content=YAML)
    again = await served.client.request(method, path, content=content, headers=headers)
    assert (again.status_code, again.json()) == (first.status_code, first.json())
    other = await served.client.post("/v1/configs/models", content=YAML + "# other", headers=headers)
    assert (other.status_code, other.json()["error"]["error"]) == (422, "idempotency_mismatch")


def _path(method: str) -> str:
    return "/v1/configs/models" if method == "DELETE" else "/v1/configs/models/acme/tiny"


async def test_models_are_resolved_and_bundles_told(served: Served) -> None:
    resolved = await served.client.post("/v1/configs/resolve", json={"model": "bundle:/acme/base"})
    assert resolved.status_code == 409
    assert resolved.json()["error"]["compatible_bundles"] == ["fakes"]
    resolved = await served.client.post("/v1/configs/resolve", json={"model": "fakes:/ACME/base:q"})
    assert resolved.json() == {
        "model": "acme/base:q",
        "resolved_bundle": "fakes",
        "compatible_bundles": ["fakes"],
        "profiles": ["q"],
    }
    bundles = (await served.client.get("/v1/configs/bundles")).json()["bundles"]
    assert [each["bundle_id"] for each in bundles][-1] == "fakes"
    assert set(bundles[-1]) == {"bundle_id", "engine", "priority", "adapter_count", "source"}
    told = await served.client.get("/v1/configs/bundles/gliner")
    assert told.headers["content-type"].startswith("application/x-yaml")
    assert "sie_gliner.loading" in yaml.safe_load(told.text)["adapters"]
    unknown = await served.client.get("/v1/configs/bundles/none")
    assert (unknown.status_code, unknown.json()["error"]["error"]) == (404, "bundle_not_found")


async def test_the_export_and_the_epoch_agree(served: Served) -> None:
    await served.client.post("/v1/configs/models", content=YAML)
    export = (await served.client.get("/v1/configs/export")).json()
    epoch = (await served.client.get("/v1/configs/epoch")).json()
    assert set(epoch) == {"epoch", "bundles_hash", "bundle_config_hashes_hash"}
    assert (export["snapshot_version"], export["epoch"]) == (1, epoch["epoch"])
    assert [each["model_id"] for each in export["models"]] == ["acme/base", "acme/tiny"]
    assert set(export["models"][1]) >= {"model_config", "raw_yaml", "affected_bundles", "pool", "source"}
    assert export["models"][1]["raw_yaml"] == YAML
    configs = served.service.registry.catalog.configs
    assert export["bundle_config_hashes"]["fakes"] == bundle_config_hash(configs.values())
    assert export["bundle_pool_config_hashes"]["fakes"] == {"default": export["bundle_config_hashes"]["fakes"]}
    assert "sie_gliner.loading" in export["bundle_adapters"]["gliner"]


async def test_the_status_of_a_model_is_a_route_of_gateways(served: Served) -> None:
    refused = await served.client.get("/v1/configs/models/acme/base/status")
    assert (refused.status_code, refused.json()["error"]["error"]) == (400, "invalid_model_id")


async def test_writes_are_counted_by_what_came_of_them(served: Served) -> None:
    await served.client.post("/v1/configs/models", content=YAML)
    await served.client.post("/v1/configs/models", content=YAML)
    await served.client.post("/v1/configs/models", content="[")
    await served.client.delete("/v1/configs/models/acme/tiny")
    counted = {
        (method, result): served.metric("sie_config_writes_total", method=method, result=result)
        for method, result in [
            ("POST", "created"),
            ("POST", "unchanged"),
            ("POST", "parse_error"),
            ("DELETE", "deleted"),
        ]
    }
    assert set(counted.values()) == {1.0}
    assert served.metric("sie_config_epoch") == 2.0
    assert served.metric("sie_config_backup_epoch") == served.service.state.epoch
