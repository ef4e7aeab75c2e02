"""Classifiers of single texts: their classes are those of transformers' pipeline, and none ranks pairs by mistake."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers as tf
from sie_pytorch import plugin
from sie_pytorch.families.classify.loading import load
from sie_text.claims import claim_classifier, claim_pairs

from sie_core.catalog import read_card
from sie_core.catalog.families import choose_family
from sie_core.catalog.fetching import FetchedModel
from sie_core.catalog.loading import load_adapter
from sie_core.contracts import Adapter, Claim, InvalidInput, Item, Task
from sie_core.plugins import PluginSet
from tests.pytorch.encoders import context
from tests.pytorch.pairs.support import write_classifier

LABELS = ("negative", "neutral", "positive")
TEXTS = ["fox", "the lazy dog jumps", "a query is short", "it ranks what a document says about the engine and a fox"]
BOUND = 1e-5


def classifier(kind: str, folder: Path, **config: Any) -> Path:
    """Save a classifier of single texts, its config changed."""
    written = write_classifier(kind, folder, labels=dict(enumerate(config.pop("labels", LABELS))))
    file = written / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | config))
    return written


def classes(adapter: Adapter, texts: list[str], **options: Any) -> list[list[tuple[str, float]]]:
    units = list(adapter.prepare([Item(text=text) for text in texts], Task("extract", options=options)))
    outputs = adapter.finish(units, adapter.run(units))
    return [[(each.label, each.score) for each in output.classifications or ()] for output in outputs]


def expected(folder: Path, **asked: Any) -> list[list[tuple[str, float]]]:
    model = tf.AutoModelForSequenceClassification.from_pretrained(str(folder)).eval()
    pipeline = tf.TextClassificationPipeline(
        model=model, tokenizer=tf.AutoTokenizer.from_pretrained(str(folder)), device="cpu"
    )
    return [[(each["label"], each["score"]) for each in pipeline(text, top_k=None, **asked)] for text in TEXTS]


def agrees(found: list[list[tuple[str, float]]], wanted: list[list[tuple[str, float]]]) -> None:
    for ours, theirs in zip(found, wanted, strict=True):
        assert dict(ours) == pytest.approx(dict(theirs), abs=BOUND)
        assert [score for _, score in ours] == sorted((score for _, score in ours), reverse=True)


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert", "modernbert", "qwen3"])
def test_classes_are_those_of_the_pipeline(kind: str, tmp_path: Path) -> None:
    folder = classifier(kind, tmp_path)
    adapter = load(context(folder))
    assert adapter.facts.operations == ("extract",)
    assert adapter.facts.takes_labels == "no"
    assert adapter.facts.notes["labels"] == ", ".join(LABELS)
    found = classes(adapter, TEXTS)
    agrees(found, expected(folder))
    agrees(classes(adapter, TEXTS[:1]), found[:1])


@pytest.mark.parametrize("problem", ["multi_label_classification", "single_label_classification", "regression"])
def test_the_problem_type_says_what_becomes_of_logits(problem: str, tmp_path: Path) -> None:
    folder = classifier("bert", tmp_path, problem_type=problem)
    agrees(classes(load(context(folder)), TEXTS), expected(folder))


@pytest.mark.parametrize(("ours", "theirs"), [("identity", "none"), ("sigmoid", "sigmoid"), ("softmax", "softmax")])
def test_a_request_may_ask_for_another_activation(ours: str, theirs: str, tmp_path: Path) -> None:
    folder = classifier("bert", tmp_path)
    agrees(classes(load(context(folder)), TEXTS, activation=ours), expected(folder, function_to_apply=theirs))


def test_a_long_text_is_cut_and_a_missing_one_refused(tmp_path: Path) -> None:
    adapter = load(context(classifier("bert", tmp_path), max_sequence_length=8))
    (unit,) = adapter.prepare([Item(text="the lazy dog jumps " * 9)], Task("extract"))
    assert (unit.tokens, unit.truncated is not None) == (8, True)
    with pytest.raises(InvalidInput, match=r"items\[0\]\.text"):
        list(adapter.prepare([Item()], Task("extract")))


@pytest.mark.parametrize(
    ("runtime", "family", "operations"),
    [
        ({}, "pytorch-classify", ("extract",)),
        ({"score_label": "positive"}, "pytorch-pairs", ("score",)),
    ],
)
def test_it_ranks_pairs_only_where_a_profile_names_the_score(
    runtime: dict[str, Any], family: str, operations: tuple[str, ...], tmp_path: Path
) -> None:
    given = context(classifier("bert", tmp_path), runtime=runtime)
    plugins = PluginSet(families={each.id: each for each in plugin.sie_model_families()})
    choice = choose_family(plugins, given.model, given.card, given.device)
    assert choice.family.id == "pytorch-classify"
    adapter, served = load_adapter(FetchedModel(given.model, None, given.card, choice, ()), given, plugins)
    assert (served.choice.family.id, adapter.facts.operations) == (family, operations)


@pytest.mark.parametrize("labels", [("score",), ("contradiction", "entailment")])
def test_rerankers_and_entailment_are_left_to_the_models_of_pairs(labels: tuple[str, ...], tmp_path: Path) -> None:
    card = read_card(classifier("bert", tmp_path, labels=labels))
    assert claim_classifier(card) is None
    claim = claim_pairs(card)
    assert isinstance(claim, Claim)
    assert claim.priority == 0
    assert claim_classifier(replace(card, config={"architectures": ["BertModel"], "model_type": "bert"})) is None


def test_a_lora_adapter_changes_the_classes_as_peft_does(tmp_path: Path) -> None:
    folder = classifier("bert", tmp_path / "base")
    base = tf.AutoModelForSequenceClassification.from_pretrained(str(folder)).eval()
    config = peft.LoraConfig(r=4, target_modules=["query", "value"], init_lora_weights=False)
    tuned = peft.get_peft_model(base, config)
    tuned.save_pretrained(str(tmp_path / "lora"))
    tokenizer = tf.AutoTokenizer.from_pretrained(str(folder))
    adapter = load(context(folder))
    assert adapter.facts.takes_lora
    plain = classes(adapter, TEXTS)
    lora = adapter.load_lora("tuned", tmp_path / "lora")
    units = list(adapter.prepare([Item(text=text) for text in TEXTS], Task("extract", lora=lora)))
    for text, output, before in zip(TEXTS, adapter.finish(units, adapter.run(units)), plain, strict=True):
        with torch.inference_mode():
            scores = tuned(**tokenizer(text, return_tensors="pt")).logits[0].softmax(dim=0).tolist()
        found = {each.label: each.score for each in output.classifications or ()}
        assert found == pytest.approx(dict(zip(LABELS, scores, strict=True)), abs=BOUND)
        assert found != pytest.approx(dict(before), abs=1e-3)
