"""Weights that were made for a class of their own (`auto_map`): equal to transformers' by the table, or refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers as tf
from sentence_transformers.sentence_transformer import modules as st
from sie_pytorch.families.classify.loading import load as load_classifier
from sie_pytorch.families.pairs.loading import load as load_pairs
from sie_pytorch.families.vision.loading import load as load_vision
from sie_sentence_transformers.references.labels.classes import Classes
from sie_sentence_transformers.references.pairs import Pairs
from sie_sentence_transformers.references.pictures import Pictures
from sie_sentence_transformers.references.vectors import Vectors
from sie_text.recipe import own_class

from sie_core.contracts import Adapter, LoadContext, ModelInfo, ModelLoadError, NoReferenceError, ReferenceModel
from tests.pytorch.encoders import LOADS, ask, context, deviation, reference, serve, write_encoder
from tests.pytorch.heads.splade import write_splade
from tests.pytorch.models import HIDDEN, randomise, write_checkpoint, write_new
from tests.pytorch.pairs.support import write_classifier, write_language_model
from tests.pytorch.tokenizers import write_tokenizer
from tests.pytorch.vision.support import write_clip

TEXTS = ["fox", "the lazy dog jumps", "a query is short"]
OWN = "modeling_own.OwnQwen2Model"
CODE = """
from transformers import Qwen2Model

class OwnQwen2Model(Qwen2Model):
    def forward(self, *args, **kwargs):
        output = super().forward(*args, **kwargs)
        output.last_hidden_state = 3 * output.last_hidden_state.flip(-1)
        return output
"""
IGNORE = {"auto_map": "ignore"}

Checkpoint = Callable[[str], Path]
Write = Callable[[Path], Any]
Load = Callable[[LoadContext], Adapter]


def name_class(folder: Path, **auto_map: Any) -> Path:
    """Have `config.json` name classes by their keys in `auto_map`."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"auto_map": auto_map}))
    return folder


def qwen2(checkpoint: Checkpoint, folder: Path) -> Path:
    """Write an encoder of Qwen2's type whose own class gives other states."""
    write_encoder(checkpoint("qwen2"), folder, st.Pooling(HIDDEN, "mean"))
    (folder / "modeling_own.py").write_text(CODE)
    return name_class(folder, AutoModel=OWN)


def falcon(folder: Path) -> None:
    """Write a plain checkpoint of a type that the fallback alone serves."""
    config = tf.FalconConfig(vocab_size=400, hidden_size=32, num_hidden_layers=1, num_attention_heads=4)
    model = tf.FalconModel(config)
    randomise(model, 0)
    model.save_pretrained(folder)
    write_tokenizer("bert", folder)


def splade(folder: Path) -> None:
    base = folder.with_name(f"{folder.name}-base")
    write_splade(write_checkpoint("bert", base, loader=tf.AutoModelForMaskedLM), folder)


def labelled(folder: Path) -> None:
    write_classifier("bert", folder, labels={0: "bad", 1: "good"})


KINDS: dict[str, tuple[Write, str, Load]] = {
    "an encoder": (lambda folder: write_checkpoint("qwen2", folder), "AutoModel", LOADS["pytorch"]),
    "what the fallback alone serves": (falcon, "AutoModel", LOADS["sentence-transformers"]),
    "SPLADE": (splade, "AutoModelForMaskedLM", LOADS["pytorch"]),
    "a reranker": (lambda folder: write_classifier("bert", folder), "AutoModelForSequenceClassification", load_pairs),
    "a classifier": (labelled, "AutoModelForSequenceClassification", load_classifier),
    "a language model": (lambda folder: write_language_model("qwen3", folder), "AutoModelForCausalLM", load_pairs),
    "images and texts": (write_clip, "AutoModel", load_vision),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_of_the_weights_that_nobody_knows_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    write, key, load = KINDS[kind]
    write(tmp_path / "model")
    name_class(tmp_path / "model", **{"AutoConfig": "configuration_own.Config", key: "org/code--modeling_own.Own"})
    with pytest.raises(ModelLoadError) as refused:
        load(context(tmp_path / "model", loadtime={"true_token": "a"} if "language" in kind else None))
    assert refused.value.failure == "CONFIG"
    for word in ("`auto_map`: org/code--modeling_own.Own", "`trust_remote_code: true`", "`auto_map: ignore`"):
        assert word in str(refused.value)


def test_an_ignored_class_is_noted_and_transformers_own_serves(checkpoint: Checkpoint, tmp_path: Path) -> None:
    folder = qwen2(checkpoint, tmp_path)
    for family in ("pytorch", "sentence-transformers"):
        encoder = serve(folder, family, loadtime=IGNORE)
        assert OWN in encoder.facts.notes["auto_map"]
        assert encoder.facts.notes["auto_map"].startswith("ignored")
        assert deviation(ask(encoder, TEXTS).vectors, reference(folder).encode(TEXTS)) <= 1e-5


def test_a_trusted_class_runs_and_gives_its_own_vectors(checkpoint: Checkpoint, tmp_path: Path) -> None:
    folder = qwen2(checkpoint, tmp_path)
    encoder = serve(folder, trust_remote_code=True)
    own, plain = (reference(folder, trust_remote_code=trusts).encode(TEXTS) for trusts in (True, False))
    assert deviation(ask(encoder, TEXTS).vectors, own) <= 1e-5
    assert np.abs(own - plain).max() > 0.1
    assert encoder.facts.notes["auto_map"] == f"{OWN}, code that comes with the weights, serves"
    with pytest.raises(ModelLoadError, match="contradict"):
        serve(folder, trust_remote_code=True, loadtime=IGNORE)


def test_code_that_no_family_runs_is_refused_where_it_is_trusted_too(tmp_path: Path) -> None:
    write_classifier("bert", tmp_path)
    name_class(tmp_path, AutoModelForSequenceClassification="modeling_own.Own")
    for trusts in (False, True):
        with pytest.raises(ModelLoadError, match=r"modeling_own\.Own.*also with `trust_remote_code: true`"):
            load_pairs(context(tmp_path, trust_remote_code=trusts))
    assert "auto_map" in load_pairs(context(tmp_path, loadtime=IGNORE)).facts.notes


PUBLISHED = {
    "nomic_bert": {
        "AutoConfig": "nomic-ai/nomic-bert-2048--configuration_hf_nomic_bert.NomicBertConfig",
        "AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel",
        "AutoModelForMaskedLM": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertForPreTraining",
    },
    "new": {
        "AutoConfig": "Alibaba-NLP/new-impl--configuration.NewConfig",
        "AutoModel": "Alibaba-NLP/new-impl--modeling.NewModel",
        "AutoModelForMaskedLM": "Alibaba-NLP/new-impl--modeling.NewForMaskedLM",
        "AutoModelForSequenceClassification": "Alibaba-NLP/new-impl--modeling.NewForSequenceClassification",
    },
    "gte": {
        "AutoConfig": "configuration_hf_alibaba_nlp_gte.GteConfig",
        "AutoModel": "modeling_hf_alibaba_nlp_gte.GteModel",
    },
    "eurobert": {
        "AutoModel": "modeling_eurobert.EuroBertModel",
        "AutoModelForMaskedLM": "modeling_eurobert.EuroBertForMaskedLM",
        "AutoModelForSequenceClassification": "modeling_eurobert.EuroBertForSequenceClassification",
    },
    "phi3": {"AutoConfig": "configuration_phi3.Phi3Config", "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"},
}
"""What published checkpoints of each type name."""


@pytest.mark.parametrize("model_type", PUBLISHED)
def test_published_classes_that_transformers_has_are_known_for_their_own_type_alone(model_type: str) -> None:
    auto_map = PUBLISHED[model_type]
    heads = [key for key in auto_map if key != "AutoConfig"]
    assert own_class({"model_type": model_type, "auto_map": auto_map}, *heads) is None
    assert own_class({"model_type": "qwen2", "auto_map": auto_map}, *heads) == auto_map[heads[0]]


@pytest.mark.parametrize("reference_class", [Vectors, Pairs, Classes, Pictures])
def test_no_reference_vouches_for_an_ignored_class(reference_class: type[ReferenceModel], tmp_path: Path) -> None:
    write_clip(tmp_path)
    served = ModelInfo("test/model", (), (), dims={}, state="loaded", notes={"auto_map": "ignored"})
    with pytest.raises(NoReferenceError, match="auto_map: ignore"):
        reference_class.load(context(tmp_path), served)


def test_a_known_class_and_code_that_computes_nothing_leave_no_note(checkpoint: Checkpoint, tmp_path: Path) -> None:
    assert "auto_map" not in serve(write_new(tmp_path / "new")).facts.notes
    shutil.copytree(checkpoint("qwen2"), tmp_path / "qwen2")
    others = {"AutoConfig": "configuration_own.Config", "AutoTokenizer": ["tokenization_own.Tokenizer", None]}
    folder = name_class(tmp_path / "qwen2", **others, AutoModelForTokenClassification="modeling_own.Own")
    assert "auto_map" not in serve(folder).facts.notes
