"""Where a model is served, by which bundle and from which pool; and that an export carries all of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from sie_bundle.bundles.hashes import bundle_config_hash
from sie_bundle.bundles.placement import BundleView, Placement
from sie_bundle.bundles.reading import Bundle, read_bundles, shipped_bundles
from sie_bundle.bundles.registry import Registry, make_registry
from sie_cluster.messages.export import read_export, write_export

from sie_core.catalog import build_catalog
from sie_core.catalog.configs.reading import config_of
from sie_core.catalog.configs.snapshot import make_catalog
from sie_core.contracts import InferenceError, InvalidInput, ModelConfig, ResolvedModel
from sie_core.defaults import BUILTINS
from sie_core.plugins import PluginSet, discover
from sie_core.settings import Settings

BUNDLES = [BundleView("slow", 9, ("pkg.slow",)), BundleView("fast", 1, ("pkg.fast",)), BundleView("empty", 5)]
SERVED = {
    "org/a": ("fast", "slow"),
    "org/a:big": ("slow",),
    "org/b": ("slow",),
    "org/nobody": (),
}


def config(text: str) -> ModelConfig:
    return config_of(text.encode(), source="test", folder=Path())


CONFIGS = [
    config("{sie_id: org/a, hf_id: org/a, profiles: {default: {}, big: {max_batch_tokens: 9}}}"),
    config("{sie_id: org/b, hf_id: org/b, pool: L4}"),
    config("{sie_id: org/nobody, hf_id: org/nobody}"),
]


def bundles_of(model: ResolvedModel) -> Sequence[str]:
    return SERVED[model.id]


@pytest.fixture
def registry() -> Registry:
    return make_registry(make_catalog(1, CONFIGS), BUNDLES, bundles_of)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("org/a", ("org/a", "fast", "_default")),
        ("org/a:default", ("org/a", "fast", "_default")),
        ("ORG/a", ("org/a", "fast", "_default")),
        ("Org/A:BIG", ("org/a:big", "slow", "_default")),
        ("org/b", ("org/b", "slow", "l4")),
        ("slow:/org/a", ("org/a", "slow", "_default")),
        ("slow:/org/a:big", ("org/a:big", "slow", "_default")),
        ("fast:/org/a:default", ("org/a", "fast", "_default")),
    ],
)
def test_a_model_leads_to_its_bundle_and_its_queue_pool(
    registry: Registry, name: str, expected: tuple[str, str, str]
) -> None:
    route = registry.resolve(name)
    assert (route.model.id, route.bundle, route.pool) == expected


def test_all_bundles_that_serve_a_model_are_told_and_one_can_be_asked_for(registry: Registry) -> None:
    assert list(registry.bundles) == ["fast", "empty", "slow"]
    assert registry.resolve("org/a").compatible == ("fast", "slow")
    assert registry.resolve("org/a", "slow").bundle == "slow"
    assert registry.resolve("slow:/org/a", "slow").bundle == "slow"
    assert registry.resolve("org/a", "slow").compatible == ("fast", "slow")


@pytest.mark.parametrize(("name", "bundle"), [("org/b", "fast"), ("fast:/org/b", None), ("org/b", "unheard-of")])
def test_a_bundle_that_does_not_serve_the_model_is_a_conflict_that_lists_those_that_do(
    registry: Registry, name: str, bundle: str | None
) -> None:
    with pytest.raises(InferenceError, match=r"does not serve org/b; slow do") as raised:
        registry.resolve(name, bundle)
    assert (raised.value.code, raised.value.spec.status) == ("BUNDLE_CONFLICT", 409)
    assert raised.value.details == {"compatible_bundles": ["slow"]}


def test_a_model_that_no_bundle_serves_is_not_found_and_the_bundles_are_named(registry: Registry) -> None:
    with pytest.raises(InferenceError, match="none of the bundles fast, empty, slow serves it") as raised:
        registry.resolve("org/nobody")
    assert raised.value.code == "MODEL_NOT_FOUND"


def test_an_unknown_model_is_answered_with_near_names(registry: Registry) -> None:
    with pytest.raises(InferenceError, match="Did you mean org/nobody"):
        registry.resolve("org/noboddy")


@pytest.mark.parametrize("name", ["", ":/org/a", "fast:/", "org/../a", "fast:/a b", "x" * 9999])
def test_what_cannot_be_a_model_is_invalid_input(registry: Registry, name: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        registry.resolve(name)
    assert raised.value.param == "model"


def test_two_bundles_for_one_model_are_invalid_input(registry: Registry) -> None:
    with pytest.raises(InvalidInput, match=r"bundle 'slow' and the model 'fast:/org/a' name two bundles"):
        registry.resolve("fast:/org/a", "slow")


def test_a_config_counts_once_for_each_bundle_of_any_of_its_profiles_and_for_its_pool(registry: Registry) -> None:
    a, b, _ = CONFIGS
    assert registry.config_hashes == {
        "fast": bundle_config_hash([a]),
        "empty": "",
        "slow": bundle_config_hash([a, b]),
    }
    assert registry.pool_config_hashes == {
        "fast": {"default": bundle_config_hash([a])},
        "empty": {},
        "slow": {"default": bundle_config_hash([a]), "l4": bundle_config_hash([b])},
    }


def test_a_filter_takes_routes_away_and_leaves_the_hashes(registry: Registry) -> None:
    told = write_export(registry, dict.fromkeys(registry.catalog.configs, "api"), "now")
    export = read_export(json.dumps(told).encode())
    filtered = build_catalog(Settings(model_filter=("org/b",)), PluginSet(), export=export)
    follower = make_registry(filtered, export.bundles, export.placement())
    assert list(follower.routes) == ["org/b"]
    assert follower.config_hashes == registry.config_hashes


def test_an_export_carries_bundles_pools_and_hashes_to_a_follower_without_plugins() -> None:
    settings = Settings()
    plugins = discover(settings, BUILTINS)
    bundles = (*read_bundles(shipped_bundles()), Bundle("fake", plugins=("fake",)))
    placement = Placement(bundles, plugins)
    configs = [
        each
        for each in build_catalog(settings, plugins).configs.values()
        if any(Path(each.source).is_relative_to(folder) for folder in plugins.model_folders)
    ]
    epochs = {"sie-fake/embedder": 7}
    service = make_registry(make_catalog(1, configs), placement.views(), placement.bundles_of, epochs)
    told = write_export(service, {each.id: "filesystem" for each in configs}, "2030-01-01T00:00:00Z")
    assert "sie_gliner.loading" in told["bundle_adapters"]["gliner"]
    assert told["models"][0].keys() == {
        "model_id",
        "model_config",
        "raw_yaml",
        "affected_bundles",
        "bundles_by_profile",
        "pool",
        "source",
        "epoch",
    }

    export = read_export(json.dumps(told).encode())
    assert {each.id: each.epoch for each in export.models if each.epoch} == epochs
    catalog = build_catalog(settings, PluginSet(), export=export)
    follower = make_registry(catalog, export.bundles, export.placement())
    assert catalog.problems == ()
    assert list(follower.catalog.configs) == sorted(each.id for each in configs)
    # Those whose LoRA adapters lie beside them are loaded from the same place.
    assert {name: each.loras for name, each in catalog.configs.items()} == {each.id: each.loras for each in configs}
    assert follower.resolve("sie-fake/embedder").bundle == "fake"
    assert follower.config_hashes == service.config_hashes == export.bundle_config_hashes
    assert (follower.bundles_hash, follower.config_hashes_hash) == (service.bundles_hash, service.config_hashes_hash)
    assert follower.pool_config_hashes == service.pool_config_hashes
    assert {name: route.compatible for name, route in follower.routes.items()} == {
        name: route.compatible for name, route in service.routes.items()
    }
