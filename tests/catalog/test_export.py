"""With a config service its export is the one source of configs."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from sie_cluster.messages.export import Export, read_export

from sie_core.catalog import Catalog, ConfigError, build_catalog, require_one_source
from sie_core.defaults import BUILTINS
from sie_core.plugins import PluginSet, discover
from sie_core.settings import Settings, SettingsError


def export_of(*texts: str, epoch: int = 7, **changed: Any) -> Export:
    """What a config service that holds these configs answers, over JSON and back."""
    contents = [yaml.safe_load(text) for text in texts]
    models = [
        {
            "model_id": content["sie_id"],
            "model_config": content,
            "raw_yaml": text,
            "affected_bundles": ["default"],
            "bundles_by_profile": {"default": ["default"]},
            "pool": "default",
            "source": "api",
        }
        for content, text in zip(contents, texts, strict=True)
    ]
    told = {
        "snapshot_version": 1,
        "epoch": epoch,
        "generated_at": "2030-01-01T00:00:00Z",
        "bundles": [{"bundle_id": "default", "priority": 100, "engine": "pytorch"}],
        "bundle_adapters": {"default": ["pkg.mod"]},
        "bundle_config_hashes": {"default": "abc"},
        "models": models,
        **changed,
    }
    return read_export(json.dumps(told).encode())


A = "sie_id: org/a  # the first\nhf_id: org/a\npool: L4\n"
B = "{sie_id: org/b, hf_id: org/b}"


def test_an_export_is_the_one_source(
    build: Callable[..., Catalog], write_config: Callable[..., Path], write_weights: Callable[..., Path], tmp_path: Path
) -> None:
    write_config("mine", "{sie_id: org/mine, hf_id: org/mine}")
    write_weights(tmp_path / "models/org/found")
    write_config("shipped", "{sie_id: org/shipped, hf_id: org/shipped}", folder="shipped")
    plugins = PluginSet(model_folders=(tmp_path / "shipped",))
    assert build(plugins).entries.keys() == {"org/mine", "org/found", "org/shipped"}
    catalog = build_catalog(Settings(), plugins, export=export_of(B, A))
    assert list(catalog.entries) == ["org/a", "org/b"]
    assert (catalog.epoch, catalog.config_epoch) == (1, 7)
    config = catalog.resolve("org/a").config
    assert (config.pool, config.text, config.source) == ("l4", A, "config service: org/a")


def test_each_snapshot_counts_on_and_carries_the_epoch_of_its_export_which_may_be_lower() -> None:
    first = build_catalog(Settings(), PluginSet(), export=export_of(A, epoch=7))
    second = build_catalog(Settings(), PluginSet(), export=export_of(A, B, epoch=3), before=first)
    assert (second.epoch, second.config_epoch) == (2, 3)


def test_a_config_that_an_export_left_as_it_was_is_not_read_again_and_a_changed_one_is() -> None:
    first = build_catalog(Settings(), PluginSet(), export=export_of(A, B))
    changed = A.replace("pool: L4", "pool: h100")
    second = build_catalog(Settings(), PluginSet(), export=export_of(changed, B), before=first)
    assert second.configs["org/b"] is first.configs["org/b"]
    assert second.configs["org/a"].pool == "h100"
    commented = build_catalog(Settings(), PluginSet(), export=export_of(f"{changed}# more", B), before=second)
    assert commented.configs["org/a"].text == f"{changed}# more"


def test_a_weights_path_of_an_export_is_on_this_machine_s_disk() -> None:
    catalog = build_catalog(Settings(), PluginSet(), export=export_of("{sie_id: a, weights_path: /weights/a}"))
    assert catalog.resolve("a").config.weights_path == "/weights/a"


def test_without_a_config_service_there_is_no_epoch_of_one(build: Callable[..., Catalog]) -> None:
    assert build().config_epoch is None


def test_what_plugins_ship_is_the_same_over_an_export() -> None:
    settings = Settings(plugins_blocked=("fake",))  # its LoRA adapters lie beside its configs
    plugins = discover(settings, BUILTINS)
    shipped = {
        model.id: model
        for model in build_catalog(settings, plugins).models()
        if any(Path(model.config.source).is_relative_to(folder) for folder in plugins.model_folders)
    }
    texts = {model.config.id: model.config.text for model in shipped.values()}
    served = build_catalog(settings, plugins, export=export_of(*texts.values()))
    assert len(shipped) > 100
    assert served.problems == ()
    for model in served.models():
        mine = replace(model, config=replace(model.config, source=shipped[model.id].config.source))
        assert mine == shipped[model.id]
        assert model.config.text == shipped[model.id].config.text
    assert served.entries.keys() == shipped.keys()


def test_a_models_folder_beside_it_stops_the_start_and_both_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    require_one_source(Settings())
    monkeypatch.setenv("SIE_MODELS_DIR", "/srv/models")
    for call in (require_one_source, lambda settings: build_catalog(settings, PluginSet(), export=export_of(A))):
        with pytest.raises(SettingsError, match=r"SIE_MODELS_DIR=/srv/models.*SIE_CONFIG_SERVICE_URL"):
            call(Settings())


def test_settings_may_name_what_is_added_later(caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings(
        model_filter=("org/a", "org/later"), preload_models=("org/later",), pinned_models=("org/later:default",)
    )
    with caplog.at_level(logging.INFO):
        first = build_catalog(settings, PluginSet(), export=export_of(A, B))
    assert list(first.entries) == ["org/a"]
    assert "SIE_PRELOAD_MODELS=org/later: the config service has no such model yet" in caplog.text
    later = "{sie_id: org/later, hf_id: org/later}"
    second = build_catalog(settings, PluginSet(), export=export_of(A, B, later), before=first)
    assert list(second.entries) == ["org/a", "org/later"]


def test_a_model_that_is_there_and_filtered_out_still_stops_the_start() -> None:
    settings = Settings(model_filter=("org/a",), preload_models=("org/b",))
    with pytest.raises(SettingsError, match=r"SIE_PRELOAD_MODELS=org/b: SIE_MODEL_FILTER leaves this model out"):
        build_catalog(settings, PluginSet(), export=export_of(A, B))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{sie_id: org/b, hf_id: org/b, colour: red}", "`colour` is no field here"),
        ("{sie_id: org/b, weights_path: ./b}", "nothing lies beside a config that is in no folder of this machine"),
    ],
)
def test_a_config_that_cannot_be_used_here_is_a_problem_and_the_rest_is_served(text: str, said: str) -> None:
    catalog = build_catalog(Settings(), PluginSet(), export=export_of(A, text))
    assert list(catalog.entries) == ["org/a"]
    (problem,) = catalog.problems
    assert problem.source == "config service: org/b"
    assert said in problem.message


def test_a_config_listed_under_another_id_is_a_problem() -> None:
    export = export_of(A)
    moved = replace(export, models=(replace(export.models[0], id="org/c"),))
    catalog = build_catalog(Settings(), PluginSet(), export=moved)
    assert not catalog.entries
    assert "'org/a' is not the id that the export lists it under, 'org/c'" in catalog.problems[0].message


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"snapshot_version": 2}, "export: snapshot_version: 2"),
        ({"epoch": -1}, "export: epoch: -1"),
        ({"epoch": "7"}, "export: epoch: '7'"),
        ({"models": [{"model_id": "a"}]}, "export: models.0.model_config: the field is needed"),
        ({"models": None}, "export: models: None"),
        ({"bundles": [{"bundle_id": "a", "engine": "pytorch"}]}, "export: bundles.0.priority: the field is needed"),
    ],
)
def test_what_is_no_export_is_refused_by_field(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        export_of(A, **changed)
    assert f"config service: {said}" in str(raised.value)
