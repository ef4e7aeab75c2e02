"""The hashes of bundles, held against a published vector and against what must and must not change them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
import yaml
from sie_bundle.bundles.hashes import bundle_config_hash, bundles_hash, config_hashes_hash
from sie_bundle.bundles.placement import BundleView

from sie_core.catalog import parse_config
from sie_core.contracts import ModelConfig

TINY = """
sie_id: acme/tiny
hf_id: acme/tiny
profiles:
  default: {adapter_path: "pkg.mod:Cls", max_batch_tokens: 16384}
  q: {extends: default, adapter_options: {runtime: {normalize: true}}}
"""
TINY_HASH = "679742470393c32c07bd02aaa72d53542a574b6b8133a150ca3ac6c1fb970aad"


def config(text: str = TINY) -> ModelConfig:
    return parse_config(yaml.safe_load(text), source="test", folder=None)


def test_the_hash_of_a_bundle_is_that_of_the_published_vector() -> None:
    assert bundle_config_hash([config()]) == TINY_HASH


def test_a_bundle_without_models_has_no_hash() -> None:
    assert bundle_config_hash([]) == ""


def test_models_count_in_the_order_of_their_ids_and_profiles_in_that_of_their_names() -> None:
    other = config(TINY.replace("acme/tiny", "acme/a"))
    assert bundle_config_hash([config(), other]) == bundle_config_hash([other, config()])
    turned = replace(config(), profiles=dict(reversed(config().profiles.items())))
    assert bundle_config_hash([turned]) == TINY_HASH
    rows = [
        {
            "profiles": [
                {
                    "config": {
                        "adapter_options": options,
                        "adapter_path": "pkg.mod:Cls",
                        "compute_precision": None,
                        "max_batch_tokens": 16384,
                    },
                    "name": name,
                }
                for name, options in (("default", None), ("q", {"runtime": {"normalize": True}}))
            ],
            "revision": None,
            "sie_id": id_,
        }
        for id_ in ("acme/a", "acme/tiny")
    ]
    told = json.dumps(rows, separators=(",", ":"))
    assert bundle_config_hash([config(), other]) == hashlib.sha256(told.encode()).hexdigest()


@pytest.mark.parametrize(
    "changed",
    [
        ("hf_id: acme/tiny", "hf_id: acme/tiny\nhf_revision: main"),
        ("16384", "8192"),
        ("16384", "16384, compute_precision: float32"),
        ("16384", "16384, adapter_options: {loadtime: {pooling: mean}}"),
        ("pkg.mod:Cls", "pkg.mod:Other"),
        ("normalize: true", "normalize: false"),
        ("q:", "r:"),
        ("sie_id: acme/tiny", "sie_id: acme/other"),
    ],
)
def test_what_workers_run_by_counts(changed: tuple[str, str]) -> None:
    assert bundle_config_hash([config(TINY.replace(*changed))]) != TINY_HASH


@pytest.mark.parametrize(
    "changed",
    [
        ("hf_id: acme/tiny", "hf_id: acme/other\npool: l4\nmax_sequence_length: 9"),
        ("16384", "16384, adapter_options: {loadtime: {}, runtime: {}}"),
        ("16384", "16384, adaptive_batching: {gain: 1.0}"),
        ("sie_id:", "# a comment\nsie_id:"),
    ],
)
def test_what_the_published_hash_leaves_out_does_not_count(changed: tuple[str, str]) -> None:
    assert bundle_config_hash([config(TINY.replace(*changed))]) == TINY_HASH


def test_the_hash_of_the_bundles_is_of_what_clients_read() -> None:
    bundles = [BundleView("b", 2, ("m.y", "m.x"), source="file"), BundleView("a", 3)]
    told = (
        '[{"adapters":[],"engine":"pytorch","name":"a","priority":3},'
        '{"adapters":["m.x","m.y"],"engine":"pytorch","name":"b","priority":2}]'
    )
    assert bundles_hash(bundles) == hashlib.sha256(told.encode()).hexdigest()
    assert bundles_hash(reversed(bundles)) == bundles_hash(bundles)
    assert bundles_hash([replace(bundles[0], source="other"), bundles[1]]) == bundles_hash(bundles)
    assert bundles_hash([replace(bundles[0], priority=4), bundles[1]]) != bundles_hash(bundles)


def test_one_hash_tells_whether_any_bundles_configs_differ() -> None:
    assert config_hashes_hash({"a": "1", "b": ""}) == config_hashes_hash({"b": "", "a": "1"})
    assert config_hashes_hash({"a": "1", "b": ""}) != config_hashes_hash({"a": "1", "b": "2"})
