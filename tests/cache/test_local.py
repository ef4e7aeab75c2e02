"""The local tier: whole snapshots only, at the revision asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sie_core.cache import LocalTier
from sie_core.cache.disk.hub_layout import repositories, wanted
from sie_core.contracts import ModelLoadError, WeightRequest, is_pickled

OLDER = "f" * 40
REQUEST = WeightRequest("org/m")


@pytest.fixture
def tier(tmp_path: Path) -> LocalTier:
    return LocalTier(tmp_path / "cache")


def lacking(tier: LocalTier) -> str:
    with pytest.raises(ModelLoadError) as raised:
        tier.fetch(REQUEST)
    assert raised.value.failure == "NOT_FOUND"
    assert str(tier.cache.folder) not in str(raised.value)
    return str(raised.value)


def test_a_whole_snapshot_is_found_at_main_at_a_tag_and_at_its_commit(
    tier: LocalTier, cached: Callable[..., Path]
) -> None:
    older = cached(commit=OLDER, ref="v1")
    newest = cached()
    assert tier.fetch(REQUEST) == newest
    assert tier.fetch(WeightRequest("org/m", "v1")) == older
    assert tier.fetch(WeightRequest("org/m", OLDER)) == older


def test_what_is_not_there_is_passed_over(tier: LocalTier, cached: Callable[..., Path]) -> None:
    assert tier.fetch(REQUEST) is None
    cached()
    assert tier.fetch(WeightRequest("org/other")) is None
    assert tier.fetch(WeightRequest("org/m", "a" * 40)) is None


def test_a_repository_without_its_ref_has_no_main(tier: LocalTier, cached: Callable[..., Path]) -> None:
    cached(ref=None)
    assert tier.fetch(REQUEST) is None


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_snapshot_that_lacks_a_file_says_which(tier: LocalTier, cached: Callable[..., Path], name: str) -> None:
    cached(**{name: None})
    assert name in lacking(tier)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_link_to_a_blob_that_is_gone_counts_as_missing(
    tier: LocalTier, cached: Callable[..., Path], name: str
) -> None:
    (cached() / name).resolve().unlink()
    assert name in lacking(tier)


def test_a_library_s_own_config_stands_for_config_json(tier: LocalTier, cached: Callable[..., Path]) -> None:
    snapshot = cached(**{"config.json": None, "sentence_bert_config.json": b"{}"})
    assert "config.json" in lacking(tier)
    (snapshot / "gliner_config.json").write_text("{}")
    assert tier.fetch(REQUEST) == snapshot


def test_every_shard_of_an_index_is_needed(tier: LocalTier, cached: Callable[..., Path]) -> None:
    index = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}).encode()
    cached(**{"model.safetensors": None, "model.safetensors.index.json": index, "model-1.safetensors": b"1"})
    assert "model-2.safetensors" in lacking(tier)


def test_the_config_of_every_pooling_and_dense_module_is_needed(tier: LocalTier, cached: Callable[..., Path]) -> None:
    modules = [
        {"path": "", "type": "sentence_transformers.models.Transformer"},
        {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
    ]
    snapshot = cached(**{"modules.json": json.dumps(modules).encode()})
    assert "1_Pooling/config.json" in lacking(tier)
    (snapshot / "1_Pooling").mkdir()
    (snapshot / "1_Pooling/config.json").write_text("{}")
    assert tier.fetch(REQUEST) == snapshot


def test_the_files_the_hubs_client_recorded_are_needed(tier: LocalTier, cached: Callable[..., Path]) -> None:
    snapshot = cached()
    record = snapshot.parent.parent / "trees" / f"{snapshot.name}.json"
    record.parent.mkdir()
    record.write_text(json.dumps({"format_version": 1, "files": {"config.json": {}, "onnx/a.json": {}, "b.bin": {}}}))
    assert tier.fetch(REQUEST) == snapshot
    record.write_text(json.dumps({"format_version": 1, "files": {"config_sentence_transformers.json": {}}}))
    assert "config_sentence_transformers.json" in lacking(tier)


@pytest.mark.parametrize("name", ["modules.json", "model.safetensors.index.json"])
@pytest.mark.parametrize("content", [b"{", b"7", b'{"weight_map": 3}', b"[3]"])
def test_a_file_list_that_cannot_be_read_makes_a_snapshot_not_whole(
    tier: LocalTier, cached: Callable[..., Path], name: str, content: bytes
) -> None:
    cached(**{name: content})
    assert name in lacking(tier)


def test_pickled_weights_alone_are_passed_over_and_said(tier: LocalTier, cached: Callable[..., Path]) -> None:
    cached(**{"model.safetensors": None, "pytorch_model.bin": b"pickled"})
    assert "pickled" in lacking(tier)


@pytest.mark.parametrize(
    "name",
    ["pytorch_model.bin", "2_Dense/pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "model.pt", "model.ckpt"],
)
def test_pickles_are_told_by_their_names_and_never_wanted(name: str) -> None:
    assert is_pickled(name)
    assert not wanted(name)


@pytest.mark.parametrize(
    "name",
    ["training_args.bin", "optimizer.pt", "openvino/openvino_model.bin", "coreml/weights/weight.bin", "vocab.pkl"],
)
def test_what_ends_like_a_pickle_and_holds_no_weights_to_read_refuses_no_model(name: str) -> None:
    assert not is_pickled(name)


def test_only_model_repositories_are_listed(cached: Callable[..., Path], tmp_path: Path) -> None:
    cached("org/m")
    cached("plain")
    (tmp_path / "cache/datasets--org--d").mkdir()
    assert list(repositories(tmp_path / "cache")) == ["org/m", "plain"]
    assert list(repositories(tmp_path / "nowhere")) == []


def test_the_cache_is_the_named_folder_else_the_hub_folder_of_hf_home(tmp_path: Path) -> None:
    script = (
        "from sie_core.cache import cache_folder; from sie_core.settings import load_settings;"
        "print(cache_folder(load_settings()))"
    )
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGINGFACE", "SIE_"))}

    def folder(**variables: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**bare, **variables},
            capture_output=True,
            text=True,
            timeout=250,
            check=True,
        )
        return done.stdout.strip()

    assert folder(HF_HOME=str(tmp_path)) == str(tmp_path / "hub")
    assert folder(HF_HOME=str(tmp_path), SIE_LOCAL_CACHE="/named") == "/named"
