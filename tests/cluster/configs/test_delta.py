"""A delta arrives as the config service wrote it; one that is forged or oversized is refused by a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from sie_bundle.bundles.registry import make_registry
from sie_cluster.configs.delta import LARGEST_TOLD, MOST_BYTES, RefusedDelta, is_trusted, read_delta, write_deltas
from sie_cluster.queue.subjects import ALL_MODELS

from sie_core.catalog.configs.reading import config_of
from sie_core.catalog.configs.snapshot import make_catalog
from tests.cluster.configs.registries import BUNDLES, bundles_of, registry_of, text_of

TEXTS = {"org/a": text_of("org/a"), "other/b": text_of("other/b", pool="L4")}
TRUSTED = ("sie-config",)


def delta_of(**changed: Any) -> bytes:
    """What is told of a new model, with fields changed."""
    registry = registry_of(TEXTS, epoch=8)
    payload = write_deltas(registry, "org/a", producer="sie-config-1", affected_bundles=["default", "other"])[0][1]
    return json.dumps({**json.loads(payload), **changed}).encode()


def refusal_of(payload: bytes) -> str:
    with pytest.raises(RefusedDelta) as refused:
        read_delta(payload, TRUSTED)
    return refused.value.reason


def test_a_change_is_told_to_all_and_to_each_bundle_with_the_hashes_afterwards() -> None:
    registry = registry_of(TEXTS, epoch=8)
    messages = write_deltas(
        registry, "org/a", producer="sie-config-1", affected_bundles=["default", "other"], profiles_added=["default"]
    )
    assert [subject for subject, _ in messages] == [
        ALL_MODELS,
        "sie.config.models.default",
        "sie.config.models.other",
    ]
    deltas = [read_delta(payload, TRUSTED) for _, payload in messages]
    assert all(json.loads(payload)["profiles_added"] == ["default"] for _, payload in messages)
    for delta, bundle in zip(deltas, ["default", "default", "other"], strict=True):
        assert delta.bundle_config_hash == registry.config_hashes[bundle]
        assert (delta.epoch, delta.previous_epoch, delta.model_id, delta.deleted) == (8, 7, "org/a", False)
        assert delta.model_config_ == TEXTS["org/a"]
        assert delta.bundles_by_profile == {"default": ["default", "other"]}
        assert delta.bundle_config_hashes == registry.config_hashes
        assert delta.bundles_hash == registry.bundles_hash


def test_a_model_that_the_registry_holds_no_more_is_told_as_deleted() -> None:
    registry = registry_of({"other/b": TEXTS["other/b"]}, epoch=9)
    ((_, payload), *_) = write_deltas(registry, "org/a", producer="sie-config", affected_bundles=["default"])
    delta = read_delta(payload, TRUSTED)
    assert (delta.deleted, delta.model_config_, delta.bundles_by_profile) == (True, "", {})


def test_a_config_beyond_what_the_broker_carries_is_left_out_for_the_export_to_tell() -> None:
    registry = registry_of({"org/a": text_of("org/a", license="x" * 5_000)}, epoch=8)
    ((_, payload), *_) = write_deltas(
        registry, "org/a", producer="sie-config", affected_bundles=["default"], most_bytes=4_000
    )
    assert len(payload) <= 4_000
    delta = read_delta(payload, TRUSTED)
    assert (delta.model_config_, delta.deleted) == ("", False)


def test_weights_beside_the_services_own_file_are_told_by_their_whole_path(tmp_path: Path) -> None:
    config = config_of(b"{sie_id: org/a, weights_path: beside}", source="test", folder=tmp_path)
    registry = make_registry(make_catalog(1, [config]), BUNDLES, bundles_of)
    ((_, payload), *_) = write_deltas(registry, "org/a", producer="sie-config", affected_bundles=["default"])
    told = yaml.safe_load(read_delta(payload, TRUSTED).model_config_)
    assert told == {"sie_id": "org/a", "weights_path": str(tmp_path / "beside")}


@pytest.mark.parametrize(
    ("producer", "trusted"),
    [
        ("sie-config", True),
        ("sie-config-7f", True),
        ("sie-configuration", False),
        ("evil-sie-config", False),
        ("", False),
    ],
)
def test_a_producer_is_trusted_by_its_whole_name_or_as_an_instance_of_one(producer: str, trusted: bool) -> None:
    assert is_trusted(producer, TRUSTED) == trusted


def test_an_untrusted_producer_is_refused() -> None:
    assert refusal_of(delta_of(router_id="worker-1")) == "untrusted"


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"[]",
        b"{}",
        delta_of(epoch=-1),
        delta_of(epoch="8"),
        delta_of(epoch=10**400),
        delta_of(bundle_config_hashes=[]),
        delta_of(model_config={"sie_id": "org/a"}),
        delta_of(bundles_by_profile={"default": ["b"] * 10_001}),
    ],
    ids=lambda payload: repr(payload[:12]),
)
def test_bytes_that_are_no_delta_are_unreadable(payload: bytes) -> None:
    assert refusal_of(payload) == "unreadable"


def test_a_delta_beyond_its_bounds_is_too_large() -> None:
    assert refusal_of(b" " * (MOST_BYTES + 1)) == "too_large"
    assert refusal_of(delta_of(model_config="x" * (LARGEST_TOLD + 1))) == "too_large"
