"""The claims of the family of pairwise models, with a reason for operators. It reads the card alone."""

from __future__ import annotations

from sie_core.contracts import Claim, ModelCard, NoClaim
from sie_text.architectures import has_classifier
from sie_text.recipe import NotUnderstoodError, is_cross_encoder, read_pair_recipe

PRIORITY = 0
SINGLE_TEXTS_PRIORITY = -100
"""Classifiers of single texts are claimed for a profile that names `score_label`.

A claim sees no profile, so the family that classifies hands those over when it loads them.
"""
LINES = (
    "profiles:\n"
    "  default: { adapter_path: pytorch-pairs, adapter_options: { loadtime: { true_token: 'yes', false_token: 'no' },\n"
    '    runtime: { template: "Query: {query}\\nDocument: {document}\\nRelevant: " } } }'
)
"""What a config needs for a causal language model; a Qwen3 needs no `template`."""
LANGUAGE_MODEL = (
    "a causal language model may rank, embed or generate, and its files do not say. To rank with it, add these lines "
    f"to its config:\n{LINES}\nwith the tokens it answers with and the words it was trained on, which its card tells; "
    "the catalog has those of Qwen3-Reranker, mxbai-rerank-v2, bge-reranker-v2-gemma and zerank-1"
)


def claim_pairs(card: ModelCard) -> Claim | NoClaim | None:
    """Claim cross-encoders, rerankers that sentence-transformers' files declare, and sequence classifiers of pairs.

    A language model is claimed if its config.json names the tokens it answers with. Any other without such files may
    be anything; a model config that names the family serves it.
    """
    try:
        recipe = read_pair_recipe(card)
    except NotUnderstoodError as reason:
        return NoClaim(str(reason)) if is_cross_encoder(card) else None
    if not is_cross_encoder(card) and recipe.source == "vocabulary":
        named = f"config.json names {' and '.join(recipe.answers)} as the tokens it answers with"
        return Claim(f"its {named}", PRIORITY) if recipe.answers else NoClaim(LANGUAGE_MODEL)
    if not is_cross_encoder(card) and not has_classifier(card):
        return NoClaim(
            f"it was saved from {card.architectures[0]}, and no classifier of the type {card.model_type} is served"
        )
    if recipe.single_texts:
        return Claim(f"{recipe.reason} unless a profile's `score_label` says otherwise", SINGLE_TEXTS_PRIORITY)
    return Claim(recipe.reason, PRIORITY)
