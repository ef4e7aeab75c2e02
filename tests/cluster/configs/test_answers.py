"""What the read routes tell of a registry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from sie_bundle.bundles.placement import BundleView
from sie_bundle.bundles.registry import Registry, make_registry
from sie_cluster.configs import answers

from sie_core.api.http.envelopes import configs_error_body
from sie_core.catalog.configs.reading import config_of, parse_config
from sie_core.catalog.configs.snapshot import make_catalog
from sie_core.contracts import InferenceError

TEXT = "sie_id: acme/tiny  # ours\nhf_id: acme/tiny\nprofiles: {default: {}, q: {extends: default}}\n"
SERVED = {"acme/tiny": ("fast", "slow"), "acme/tiny:q": ("slow",), "acme/found": ("slow",)}


@pytest.fixture
def registry() -> Registry:
    configs = [
        config_of(TEXT.encode(), source="tests", folder=Path()),
        parse_config({"sie_id": "acme/found", "hf_id": "acme/found"}, source="tests", folder=Path()),
        parse_config({"sie_id": "acme/status", "hf_id": "acme/x"}, source="tests", folder=Path()),
    ]
    bundles = [BundleView("slow", 9, ("pkg.b", "pkg.a")), BundleView("fast", 1, source="/secret/place")]
    return make_registry(make_catalog(1, configs), bundles, lambda model: SERVED.get(model.id, ()))


def refusal(call, *arguments) -> tuple[str, str, str]:
    with pytest.raises(InferenceError) as raised:
        call(*arguments)
    return raised.value.code, configs_error_body(raised.value)["error"]["error"], raised.value.message


def test_every_config_is_listed_and_every_profile_beside_the_default_one_by_its_own_name(registry: Registry) -> None:
    listed = answers.models_listing(registry, {"acme/tiny": "api"})["models"]
    assert [(each["model_id"], each["profiles"], each["source"]) for each in listed] == [
        ("acme/found", ["default"], "filesystem"),
        ("acme/status", ["default"], "filesystem"),
        ("acme/tiny", ["default", "q"], "api"),
        ("acme/tiny:q", ["q"], "api"),
    ]


def test_a_config_is_told_as_it_was_written(registry: Registry) -> None:
    assert answers.model_yaml(registry, "acme/tiny") == answers.model_yaml(registry, "acme/tiny:default") == TEXT
    found = yaml.safe_load(answers.model_yaml(registry, "acme/found"))
    assert found == {"sie_id": "acme/found", "hf_id": "acme/found"}
    variant = yaml.safe_load(answers.model_yaml(registry, "acme/tiny:q"))
    assert variant == {"sie_id": "acme/tiny:q", "variant_of": "acme/tiny", "profile": "q"}


@pytest.mark.parametrize("name", ["acme/none", "acme/tiny:r", "none"])
def test_an_unknown_config_is_not_found(registry: Registry, name: str) -> None:
    assert refusal(answers.model_yaml, registry, name)[:2] == ("MODEL_NOT_FOUND", "model_not_found")


@pytest.mark.parametrize(
    "name", ["", "/acme", "../acme", "acme/../x", "a\\b", "a\nb", "a\0b", "status", "acme/tiny/status", "x" * 300]
)
def test_what_can_be_no_id_is_refused_as_such(registry: Registry, name: str) -> None:
    assert refusal(answers.model_yaml, registry, name)[:2] == ("INVALID_INPUT", "invalid_model_id")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"model": "ACME/Tiny"}, ("acme/tiny", "fast", ["fast", "slow"], ["default", "q"])),
        ({"model": "acme/tiny", "bundle": "slow"}, ("acme/tiny", "slow", ["fast", "slow"], ["default", "q"])),
        ({"model": "acme/tiny:q", "bundle": None}, ("acme/tiny:q", "slow", ["slow"], ["q"])),
        ({"model": "slow:/acme/tiny"}, ("acme/tiny", "slow", ["fast", "slow"], ["default", "q"])),
    ],
)
def test_a_model_is_resolved_to_its_bundle(registry: Registry, body: dict[str, str], expected: tuple) -> None:
    told = answers.resolve_answer(registry, json.dumps(body).encode())
    assert tuple(told.values()) == expected
    assert list(told) == ["model", "resolved_bundle", "compatible_bundles", "profiles"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{", ("INVALID_INPUT", "parse_error")),
        (b"[" * 5000, ("INVALID_INPUT", "parse_error")),
        (b"[]", ("INVALID_INPUT", "parse_error")),
        (b'{"model": 3}', ("INVALID_INPUT", "parse_error")),
        (b"{}", ("INVALID_INPUT", "missing_field")),
        (b'{"model": "a b"}', ("INVALID_INPUT", "invalid_model_spec")),
        (b'{"model": "fast:/acme/tiny", "bundle": "slow"}', ("INVALID_INPUT", "invalid_model_spec")),
        (b'{"model": "acme/none"}', ("MODEL_NOT_FOUND", "model_not_found")),
        (b'{"model": "acme/found", "bundle": "fast"}', ("BUNDLE_CONFLICT", "bundle_conflict")),
    ],
)
def test_a_request_that_cannot_be_resolved_is_refused_by_name(
    registry: Registry, body: bytes, expected: tuple[str, str]
) -> None:
    assert refusal(answers.resolve_answer, registry, body)[:2] == expected


def test_bundles_are_told_by_priority_and_without_paths_of_this_machine(registry: Registry) -> None:
    told = answers.bundles_listing(registry)["bundles"]
    assert [(each["bundle_id"], each["priority"], each["adapter_count"]) for each in told] == [
        ("fast", 1, 0),
        ("slow", 9, 2),
    ]
    assert {each["source"] for each in told} == {"filesystem"}
    assert yaml.safe_load(answers.bundle_yaml(registry, "slow")) == {
        "name": "slow",
        "engine": "pytorch",
        "priority": 9,
        "source": "filesystem",
        "adapters": ["pkg.b", "pkg.a"],
    }
    code, error, message = refusal(answers.bundle_yaml, registry, "../fast")
    assert (code, error) == ("NOT_FOUND", "bundle_not_found")
    assert "there are fast, slow" in message


def test_the_epoch_is_told_with_the_hashes(registry: Registry) -> None:
    told = answers.epoch_answer(registry)
    assert told == {
        "epoch": 0,
        "bundles_hash": registry.bundles_hash,
        "bundle_config_hashes_hash": registry.config_hashes_hash,
    }
