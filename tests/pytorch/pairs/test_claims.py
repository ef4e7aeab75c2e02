"""Which weights the family of pairs claims, from their cards alone, and what the operator reads."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sie_sentence_transformers.fallback.claims import claim_fallback
from sie_text.claims import claim_encoder, claim_pairs, preview_pairs

from sie_core.contracts import Claim, ModelCard, ModelConfig, ModuleCard, Profile

ROOT = Path("/weights")
CROSS_ENCODER = {"model_type": "CrossEncoder"}
SCORES = {"in_features": 4, "out_features": 1, "module_output_name": "scores"}


def module(kind: str, **config: Any) -> ModuleCard:
    return ModuleCard(kind, f"sentence_transformers.models.{kind}", ROOT, config)


def plain(model_type: str, *architectures: str) -> ModelCard:
    return ModelCard(ROOT, {"model_type": model_type, "architectures": list(architectures)})


def classifier(*labels: str, files: tuple[str, ...] = ("model.safetensors",), **fields: Any) -> ModelCard:
    names = {"id2label": {str(number): label for number, label in enumerate(labels)}} if labels else {}
    config = {"model_type": "distilbert", "architectures": ["DistilBertForSequenceClassification"], **names, **fields}
    return ModelCard(ROOT, config, files=files)


def declared(*modules: ModuleCard) -> ModelCard:
    return ModelCard(ROOT, {"model_type": "bert"}, modules, CROSS_ENCODER)


OURS = {
    "a plain classifier": plain("bert", "BertForSequenceClassification"),
    "gte's": plain("new", "NewForSequenceClassification"),
    "one label": classifier("LABEL_0"),
    "one label without a name": classifier(num_labels=1),
    "entailment among two labels": classifier("entailment", "not_entailment"),
    "a classifier of the catalog, whose labels only its files tell": classifier(files=()),
    "two labels of an older cross-encoder": classifier(
        "no", "yes", sbert_ce_default_activation_function="torch.nn.ReLU"
    ),
    "two labels of a cross-encoder": replace(classifier("no", "yes"), sentence_transformers=CROSS_ENCODER),
    "a saved classifier": declared(module("Transformer", transformer_task="sequence-classification")),
    "layers after a pooling": declared(module("Transformer"), module("Pooling"), module("Dense", **SCORES)),
    "a language model": declared(
        module("Transformer", transformer_task="text-generation"), module("LogitScore", true_token_id=1)
    ),
}
SINGLE_TEXTS = {
    "sentiment": (classifier("NEGATIVE", "POSITIVE"), "NEGATIVE, POSITIVE"),
    "toxicity": (classifier("toxic", "obscene", "threat"), "toxic, obscene, threat"),
    "two labels that config.json leaves out": (classifier(), "LABEL_0, LABEL_1"),
    "labels that are only counted": (classifier(num_labels=3), "LABEL_0, LABEL_1, LABEL_2"),
    "a hundred labels": (classifier(*map(str, range(100))), "0, 1, 2, 3, 4, 5, 6, 7, …"),
}
NOT_OURS = {
    "an encoder": plain("bert", "BertModel"),
    "a language model nobody calls a reranker": plain("qwen3", "Qwen3ForCausalLM"),
    "a classifier of images": plain("vit", "ViTForImageClassification"),
    "a classifier of another architecture": plain("t5", "T5ForSequenceClassification"),
    "an encoder's modules": ModelCard(ROOT, {}, (module("Transformer"), module("Pooling")), {}),
    "another chain": declared(module("Transformer"), module("WeightedLayerPooling"), module("Dense", **SCORES)),
    "no scores": declared(module("Transformer"), module("Pooling"), module("Dense", in_features=4, out_features=1)),
    "code of its own": declared(ModuleCard("0", "their.code.Transformer", ROOT)),
    "a LogitScore without a token": declared(
        module("Transformer", transformer_task="text-generation"), module("LogitScore")
    ),
    "settings nobody knows": declared(
        module("Transformer", transformer_task="sequence-classification", processing_kwargs={"image": {"size": 1}})
    ),
    "an empty folder": ModelCard(ROOT, {}),
}


@pytest.mark.parametrize("case", OURS)
def test_models_of_pairs_are_claimed_by_one_family(case: str) -> None:
    claim = claim_pairs(OURS[case])
    assert isinstance(claim, Claim)
    assert claim.reason.startswith("its ")
    assert "single texts" not in claim.reason
    assert claim.priority == 0
    assert claim_encoder(OURS[case]) is None
    assert claim_fallback(OURS[case]) is None


@pytest.mark.parametrize("case", NOT_OURS)
def test_what_has_no_head_of_pairs_is_not_claimed(case: str) -> None:
    assert not isinstance(claim_pairs(NOT_OURS[case]), Claim)


@pytest.mark.parametrize("case", SINGLE_TEXTS)
def test_a_classifier_of_single_texts_is_left_to_any_other_family_and_listed_with_no_score(case: str) -> None:
    card, labels = SINGLE_TEXTS[case]
    claim = claim_pairs(card)
    assert isinstance(claim, Claim)
    assert claim.priority < 0
    assert f"with the labels {labels}, which classifies single texts unless" in claim.reason
    chosen = Profile("default", runtime={"score_label": "POSITIVE"})
    assert preview_pairs(card, ModelConfig("org/any")) is None
    facts = preview_pairs(card, ModelConfig("org/any", profiles={"default": chosen}))
    assert facts is not None
    assert facts.operations == ("score",)
