"""The claims of the family of pairwise models, with a reason for operators. It reads the card alone."""

from __future__ import annotations

from sie_text.architectures import has_classifier
from sie_text.recipe import NotUnderstoodError, is_cross_encoder, read_pair_recipe

from sie_core.contracts import Claim, ModelCard, NoClaim

PRIORITY = 0
SINGLE_TEXTS_PRIORITY = -100
"""Classifiers of single texts are claimed for a profile that names `score_label`.

A claim sees no profile, so the family that classifies hands those over when it loads them.
"""
LANGUAGE_MODEL = (
    "a causal language model may rank, embed or generate: to rank with it, set `adapter_path: pytorch-pairs` in a "
    "profile, with `true_token` and `false_token` in its loadtime options, and a `template` in its runtime options "
    "where its files have none"
)


def claim_pairs(card: ModelCard) -> Claim | NoClaim | None:
    """Claim cross-encoders, rerankers that sentence-transformers' files declare, and sequence classifiers of pairs.

    A causal language model without such files may be anything; a model config that names the family serves it.
    """
    try:
        recipe = read_pair_recipe(card)
    except NotUnderstoodError as reason:
        return NoClaim(str(reason)) if is_cross_encoder(card) else None
    if not is_cross_encoder(card) and recipe.source == "vocabulary":
        return NoClaim(LANGUAGE_MODEL)
    if not is_cross_encoder(card) and not has_classifier(card):
        return NoClaim(
            f"it was saved from {card.architectures[0]}, and no classifier of the type {card.model_type} is served"
        )
    if recipe.single_texts:
        return Claim(f"{recipe.reason} unless a profile's `score_label` says otherwise", SINGLE_TEXTS_PRIORITY)
    return Claim(recipe.reason, PRIORITY)
