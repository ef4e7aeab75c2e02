"""Model types by a record alone: a name of its own for another type's class, its heads, and records that are wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as tf
from sie_pytorch.forward import BuiltRunner, build_runner
from sie_pytorch.forward.specs import RUNNERS
from sie_pytorch.heads.own_class.loading import load_classifier
from sie_pytorch.heads.own_class.masked_language import load_masked_language_head
from sie_text.architectures import Architecture, Records

from sie_core.catalog import read_card
from sie_core.contracts import Device, ModelLoadError
from tests.pytorch.forward.support import TOLERANCE, batch_for, deviation, forward, padded_states, reference_model
from tests.pytorch.models import LAYERS_OF, write_checkpoint

ACME: Records = {"acme": Architecture("acme", like="bert")}


def renamed(folder: Path) -> Path:
    """Have a checkpoint state the model type `acme`."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "acme"}))
    return folder


def built(folder: Path, records: Records) -> BuiltRunner:
    card = replace(read_card(folder), records=records)
    return build_runner(folder, card, Device("cpu"), "float32", runner_specs=RUNNERS)


def test_a_type_that_is_another_with_a_name_of_its_own_is_served_as_fast(
    checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    runner = built(renamed(write_checkpoint("bert", tmp_path)), ACME)
    assert runner.info.name == "encoder-loop", runner.info.reason
    expected = padded_states(reference_model("bert", checkpoint("bert")), batch_for("bert"))
    assert deviation(forward(runner, batch_for("bert")), expected) <= TOLERANCE


def test_its_heads_are_those_of_the_type_it_is_like(tmp_path: Path) -> None:
    masked = renamed(write_checkpoint("bert", tmp_path / "masked", loader=tf.AutoModelForMaskedLM))
    head = load_masked_language_head(masked, torch.float32, torch.device("cpu"), ACME)
    assert head.dims == 400
    labelled = renamed(write_checkpoint("bert", tmp_path / "labelled", loader=tf.AutoModelForSequenceClassification))
    assert load_classifier(labelled, ACME).labels == 2
    with pytest.raises(ModelLoadError, match="not one that transformers reads"):
        load_classifier(labelled)


def test_a_class_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    folder = renamed(write_checkpoint("bert", tmp_path))
    with pytest.raises(ModelLoadError, match=r"architecture 'acme' names acme\.model:Acme, which cannot") as told:
        built(folder, {"acme": Architecture("acme", model="acme.model:Acme")})
    assert told.value.failure == "DEPENDENCY"


def test_a_class_whose_config_is_of_another_type_is_refused(tmp_path: Path) -> None:
    folder = renamed(write_checkpoint("bert", tmp_path))
    with pytest.raises(ModelLoadError, match="whose config class states the model_type 'bert'"):
        built(folder, {"acme": Architecture("acme", model="transformers:BertModel")})


def test_layers_that_are_not_there_are_told_and_the_class_serves(tmp_path: Path) -> None:
    folder = renamed(write_checkpoint("bert", tmp_path))
    runner = built(folder, {"acme": Architecture("acme", like="bert", layers=LAYERS_OF["distilbert"])})
    assert runner.info.name == "packed"
    assert "not encoder-loop: its layers are not those of its record: " in runner.info.reason
    assert np.isfinite(forward(runner, batch_for("bert")).numpy()).all()
