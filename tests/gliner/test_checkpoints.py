"""What is loaded: safetensors from a whole folder; no pickle, no code, nothing fetched, nothing random."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from sie_gliner.claims import claim_gliner

from sie_core.catalog import read_card
from sie_core.contracts import ModelCard, ModelLoadError
from tests.gliner.loading import asking, extract, load


@pytest.fixture
def copied(checkpoint: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """Copy a checkpoint, and change what its config says."""

    def copy(kind: str = "span", **changes: Any) -> Path:
        folder = Path(shutil.copytree(checkpoint(kind), tmp_path / kind))
        config = json.loads((folder / "gliner_config.json").read_text()) | changes
        (folder / "gliner_config.json").write_text(json.dumps(config))
        return folder

    return copy


def failure(folder: Path, **config: Any) -> ModelLoadError:
    with pytest.raises(ModelLoadError) as failed:
        load(folder, **config)
    assert str(folder) not in str(failed.value)
    return failed.value


def test_pickled_weights_are_refused_with_the_remedy(copied: Callable[..., Path]) -> None:
    folder = copied()
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    error = failure(folder)
    assert error.failure == "CONFIG"
    assert "pytorch_model.bin" in str(error)
    assert "save_pretrained(folder, safe_serialization=True)" in str(error)


def test_a_pickle_beside_safetensors_is_never_opened(copied: Callable[..., Path]) -> None:
    folder = copied()
    (folder / "pytorch_model.bin").write_bytes(b"not even a pickle")
    assert extract(load(folder), ["old river"], asking(["city"]))


def test_a_tensor_that_is_missing_is_not_made_up(copied: Callable[..., Path]) -> None:
    folder = copied()
    tensors = load_file(folder / "model.safetensors")
    del tensors["span_rep_layer.span_rep_layer.out_project.0.weight"]
    save_file(tensors, folder / "model.safetensors")
    error = failure(folder)
    assert error.failure == "CORRUPT"
    assert "span_rep_layer.span_rep_layer.out_project.0.weight" in str(error)


@pytest.mark.parametrize("name", ["extra", "scorer.proj_token.weight", "token_rep_layer.projection.weight"])
def test_a_tensor_that_nothing_would_use_is_refused_by_name(copied: Callable[..., Path], name: str) -> None:
    folder = copied()
    save_file(load_file(folder / "model.safetensors") | {name: torch.ones(2)}, folder / "model.safetensors")
    error = failure(folder)
    assert error.failure == "CORRUPT"
    assert f"does not use: {name}" in str(error)


def test_a_tensor_of_another_shape_is_refused_by_name(copied: Callable[..., Path]) -> None:
    error = failure(copied("mlp", max_width=9))
    assert error.failure == "CORRUPT"
    assert "span_rep_layer.span_rep_layer.mlp.bias has the shape" in str(error)


@pytest.mark.parametrize("name", ["encoder.layer.1.output.dense.weight", "embeddings.word_embeddings.weight"])
def test_a_tensor_of_an_encoder_that_is_missing_is_not_made_up(copied: Callable[..., Path], name: str) -> None:
    folder = copied("bi-span")
    tensors = load_file(folder / "model.safetensors")
    del tensors[f"token_rep_layer.labels_encoder.model.{name}"]
    save_file(tensors, folder / "model.safetensors")
    error = failure(folder)
    assert error.failure == "CORRUPT"
    assert name in str(error)


@pytest.mark.parametrize(
    ("kind", "changes", "told"),
    [
        ("span", {"max_len": "many"}, "max_len is 'many'"),
        ("span", {"span_mode": "markerV9"}, "span_mode is 'markerV9', and must be one of cat, conv_conv"),
        ("span", {"subtoken_pooling": "median"}, "must be one of first, last, mean, max"),
        ("span", {"words_splitter_type": "runes"}, "must be one of whitespace"),
        ("span", {"words_splitter_type": "jieba"}, "pip install jieba3"),
        ("span", {"span_encoder_config": {"model_type": "gpt2"}}, "must have one of deberta-v2, modernbert, rnn"),
        ("span", {"ent_token": "<<NEW>>"}, "class_token_index is"),
        ("relex", {"relations_layer": "guess"}, "relations_layer is 'guess'"),
        ("relex", {"triples_layer": "Guess"}, "triples_layer is 'Guess', and must be one of ComplEx"),
    ],
)
def test_a_config_that_is_not_understood_is_refused_by_its_field(
    copied: Callable[..., Path], kind: str, changes: dict[str, Any], told: str
) -> None:
    error = failure(copied(kind, **changes))
    assert error.failure in {"CONFIG", "DEPENDENCY"}
    assert told in str(error)


@pytest.mark.parametrize("part", ["encoder_config", "labels_encoder_config"])
def test_code_that_comes_with_weights_is_not_run_unasked(copied: Callable[..., Path], part: str) -> None:
    folder = copied("bi-span")
    config = json.loads((folder / "gliner_config.json").read_text())
    config[part]["auto_map"] = {"AutoModel": "evil.Model"}
    (folder / "gliner_config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    error = failure(folder)
    assert error.failure == "CONFIG"
    assert "trust_remote_code" in str(error)
    assert "evil.Model" in str(error)
    assert str(failure(folder, trust_remote_code=True)) == str(error)
    assert "evil.Model" in load(folder, loadtime={"auto_map": "ignore"}).facts.notes["auto_map"]


@pytest.mark.parametrize(
    ("kind", "changes", "told"),
    [
        ("span", {"encoder_config": None}, "no encoder_config"),
        ("bi-span", {"labels_encoder_config": None}, "no labels_encoder_config"),
        ("span", {"words_splitter_type": "stanza"}, "stanza"),
        ("span", {"precomputed_prompts_mode": True}, "not for a request to say"),
        ("span", {"labels_decoder": "gpt2", "labels_decoder_config": {"n_embd": 8, "n_head": 1, "n_layer": 1}}, ""),
    ],
)
def test_what_would_be_fetched_or_labels_by_itself_is_refused(
    copied: Callable[..., Path], kind: str, changes: dict[str, Any], told: str
) -> None:
    error = failure(copied(kind, **changes))
    assert error.failure in {"CONFIG", "CORRUPT"}
    assert told in str(error)


@pytest.mark.parametrize("name", ["tokenizer_config.json", "labels_tokenizer/tokenizer_config.json"])
def test_a_tokenizer_that_is_not_there_is_named(copied: Callable[..., Path], name: str) -> None:
    folder = copied("bi-span")
    (folder / name).unlink()
    error = failure(folder)
    assert error.failure == "CONFIG"
    assert name in str(error)


@pytest.mark.parametrize("name", ["gliner_config.json", "model.safetensors"])
def test_a_damaged_file_is_corrupt(copied: Callable[..., Path], name: str) -> None:
    folder = copied()
    (folder / name).write_bytes(b"{")
    assert failure(folder).failure == "CORRUPT"


def test_a_profile_whose_options_cannot_be_served_is_refused_at_load(copied: Callable[..., Path]) -> None:
    error = failure(copied(), runtime={"relation_labels": ["of"]})
    assert error.failure == "CONFIG"
    assert "runtime.relation_labels" in str(error)


def test_the_model_s_config_may_shorten_windows(copied: Callable[..., Path]) -> None:
    adapter = load(copied(), max_sequence_length=40)
    assert "40 tokens" in adapter.facts.notes["window"]


def test_facts_say_what_the_model_does(copied: Callable[..., Path]) -> None:
    facts = load(copied()).facts
    assert (facts.operations, facts.outputs, facts.inputs) == (("extract",), (), ("text",))
    assert facts.takes_labels == "required"
    assert facts.memory_bytes > 1000


def test_a_folder_of_gliner_s_is_claimed_by_its_config(checkpoint: Callable[..., Path]) -> None:
    assert claim_gliner(read_card(checkpoint("span"))) is not None
    assert claim_gliner(ModelCard(Path(), {"model_type": "gliner_uni_encoder_span"})) is not None
    assert claim_gliner(ModelCard(Path(), {"model_type": "bert"}, files=("config.json",))) is None
