"""Which weights the family of pairs claims, from their cards alone, and what the operator reads."""

from pathlib import Path
from typing import Any

import pytest
from sie_pytorch.claims import claim_encoder, claim_fallback
from sie_pytorch.scoring.claims import claim_pairs

from sie_core.contracts import ModelCard, ModuleCard

ROOT = Path("/weights")
CROSS_ENCODER = {"model_type": "CrossEncoder"}
SCORES = {"in_features": 4, "out_features": 1, "module_output_name": "scores"}


def module(kind: str, **config: Any) -> ModuleCard:
    return ModuleCard(kind, f"sentence_transformers.models.{kind}", ROOT, config)


def plain(model_type: str, *architectures: str) -> ModelCard:
    return ModelCard(ROOT, {"model_type": model_type, "architectures": list(architectures)})


def declared(*modules: ModuleCard) -> ModelCard:
    return ModelCard(ROOT, {"model_type": "bert"}, modules, CROSS_ENCODER)


OURS = {
    "a plain classifier": plain("bert", "BertForSequenceClassification"),
    "gte's": plain("new", "NewForSequenceClassification"),
    "a saved classifier": declared(module("Transformer", transformer_task="sequence-classification")),
    "layers after a pooling": declared(module("Transformer"), module("Pooling"), module("Dense", **SCORES)),
    "a language model": declared(
        module("Transformer", transformer_task="text-generation"), module("LogitScore", true_token_id=1)
    ),
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
    assert claim is not None
    assert claim.reason.startswith("its ")
    assert claim_encoder(OURS[case]) is None
    assert claim_fallback(OURS[case]) is None


@pytest.mark.parametrize("case", NOT_OURS)
def test_what_has_no_head_of_pairs_is_not_claimed(case: str) -> None:
    assert claim_pairs(NOT_OURS[case]) is None
