"""Which weights the family of pairwise models claims, and the reason an operator reads. It reads the card alone."""

from __future__ import annotations

from sie_text.recipe import NotUnderstoodError, is_cross_encoder, read_pair_recipe

from sie_core.contracts import Claim, ModelCard
from sie_pytorch.forward.architectures import has_classifier

PRIORITY = 0
SINGLE_TEXTS_PRIORITY = -100
"""Classifiers of single texts are claimed for a profile that names `score_label`.

A claim sees no profile, so the family that classifies hands those over when it loads them.
"""


def claim_pairs(card: ModelCard) -> Claim | None:
    """Claim cross-encoders, rerankers that sentence-transformers' files declare, and sequence classifiers of pairs.

    A causal language model without such files may be anything; a model config that names the family serves it.
    """
    try:
        recipe = read_pair_recipe(card)
    except NotUnderstoodError:
        return None
    if not is_cross_encoder(card) and (recipe.source != "classifier" or not has_classifier(card.model_type)):
        return None
    if recipe.single_texts:
        return Claim(f"{recipe.reason} unless a profile's `score_label` says otherwise", SINGLE_TEXTS_PRIORITY)
    return Claim(recipe.reason, PRIORITY)
