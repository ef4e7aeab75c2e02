"""The claims of the family of token classifiers. It reads the card alone."""

from __future__ import annotations

from collections.abc import Mapping

from sie_core.contracts import Claim, ModelCard, ModelConfig, ModelFacts, NoClaim
from sie_text.architectures import architecture_of
from sie_text.recipe import class_of_type

SUFFIX = "ForTokenClassification"
SHOWN_LABELS = 8


def claim_token_classifier(card: ModelCard) -> Claim | NoClaim | None:
    """Claim checkpoints of transformers' own classes for token classification, of any architecture with a runner."""
    saved = card.architectures[0] if card.architectures else ""
    if not saved.endswith(SUFFIX) or card.modules:
        return None
    if architecture_of(card) is None:
        return NoClaim(f"it was saved from {saved}, and no token classifier of the type {card.model_type} is served")
    if not class_of_type(saved, card.model_type, SUFFIX):
        return NoClaim(f"it was saved from {saved}, which is not transformers' token classifier of {card.model_type}")
    return Claim(f"its config.json names {saved}, which labels the tokens of a text{_labels(card)}")


def preview_token_classifier(card: ModelCard, config: ModelConfig) -> ModelFacts:
    """Preview a token classifier."""
    return ModelFacts(operations=("extract",), takes_labels="optional", max_sequence_length=config.max_sequence_length)


def _labels(card: ModelCard) -> str:
    names = card.config.get("id2label")
    if not isinstance(names, Mapping) or not names:
        return ""
    shown = [str(name) for name in names.values()]
    return f": {', '.join(shown[:SHOWN_LABELS])}{', …' if len(shown) > SHOWN_LABELS else ''}"
