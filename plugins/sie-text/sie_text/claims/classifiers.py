"""The claims of the family of classifiers. It reads the card alone."""

from __future__ import annotations

from collections.abc import Mapping

from sie_core.contracts import Claim, ModelCard, ModelConfig, ModelFacts
from sie_text.architectures import has_classifier
from sie_text.labels import Labels
from sie_text.recipe import NotUnderstoodError, read_pair_recipe


def claim_classifier(card: ModelCard) -> Claim | None:
    """Claim sequence classifiers unless something says that they read pairs."""
    try:
        recipe = read_pair_recipe(card)
    except NotUnderstoodError:
        return None
    if not recipe.single_texts or not has_classifier(card):
        return None
    return Claim(recipe.reason)


def preview_classifier(card: ModelCard, config: ModelConfig) -> ModelFacts | None:
    """Preview a classifier; None if a profile has its logits rank pairs."""
    if any(profile.runtime.get("score_label") for profile in config.profiles.values()):
        return None
    names = card.config.get("id2label")
    classes = Labels.of(card, len(names), None).names if isinstance(names, Mapping) else ()
    return ModelFacts(operations=("extract",), classes=classes, max_sequence_length=config.max_sequence_length)
