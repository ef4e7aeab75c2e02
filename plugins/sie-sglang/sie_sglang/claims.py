"""The claims of the family, with a reason for operators. It reads the card alone and imports no model library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sie_text.architectures import architecture_of, translate
from sie_text.recipe import (
    NormalizeSettings,
    NotUnderstoodError,
    PairRecipe,
    Recipe,
    read_pair_recipe,
    read_recipe,
)

from sie_core.contracts import Claim, ModelCard, ModelLoadError

READ_AT = "0.5.23"
"""The release of sglang whose registry, routes and arguments this plugin was written against."""
RERANKERS = frozenset(
    {"LlamaForCausalLM", "MistralForCausalLM", "Phi3ForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
)
"""Language models of its registry."""
EMBEDDERS = frozenset(
    {
        "LlamaForCausalLM",
        "MistralForCausalLM",
        "MistralModel",
        "Phi3ForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen3ForCausalLM",
        "Qwen3Model",
    }
)
"""Classes of its registry that give the last token's state at unit length."""
LARGE = 5_000_000_000
"""Bytes of weights above which the engine comes before the families of this process: paged attention and tensor
parallelism then outweigh its cost for each text."""
PRIORITY = -20
LARGE_PRIORITY = 20


def claim_embedder(card: ModelCard) -> Claim | None:
    """Claim embedders that pool the last token of a causal model and normalise it."""
    try:
        recipe = read_recipe(card)
    except NotUnderstoodError:
        return None
    return None if unfit(card, recipe) else _claim(card, "the vector is the last token's state at unit length")


def claim_reranker(card: ModelCard) -> Claim | None:
    """Claim language models whose files name two tokens that they answer with."""
    try:
        recipe = read_pair_recipe(card)
    except NotUnderstoodError:
        return None
    named = len(recipe.tokens) == 2 or len(recipe.answers) == 2
    if unfit_pairs(card, recipe) or not named:
        return None
    return _claim(card, "its files name the two tokens that it answers with")


def _claim(card: ModelCard, why: str) -> Claim:
    size = weight_bytes(card)
    reason = f"SGLang has {card.architectures[0]}, and {why}"
    if size is None or size <= LARGE:
        return Claim(reason, PRIORITY)
    return Claim(f"{reason}; at {size / 1e9:.0f} GB it comes before smaller engines", LARGE_PRIORITY)


def unfit_pairs(card: ModelCard, recipe: PairRecipe) -> str | None:
    """Say why the engine does not score pairs by a recipe; None if it does."""
    if recipe.source != "vocabulary":
        return "the engine scores by a language model's tokens alone"
    return _unknown(card, RERANKERS)


def _unknown(card: ModelCard, known: frozenset[str]) -> str | None:
    if set(card.architectures[:1]) & known:
        return None if is_causal(card) else "its attention is not causal, and the engine's is"
    return f"it has no such model by the class {', '.join(card.architectures) or 'that the files do not name'}"


def unfit(card: ModelCard, recipe: Recipe) -> str | None:
    """Say why the engine does not compute a recipe; None if it does."""
    if recipe.pooling is None or recipe.pooling.modes != ("lasttoken",):
        return "the engine pools by the last token alone"
    if len(recipe.head) != 1 or not isinstance(recipe.head[0], NormalizeSettings):
        return "the engine gives vectors at unit length, and the files ask for other steps after the pooling"
    if recipe.truncate_dim is not None:
        return "the files cut every vector"
    return _unknown(card, EMBEDDERS)


def is_causal(card: ModelCard) -> bool:
    """Whether each token sees only those before it, by the record of its model type."""
    record = architecture_of(card)
    try:
        translated = translate(card.config, card.records)
    except ModelLoadError:
        return False
    config: Mapping[str, Any] = card.config if translated is None else {**card.config, **translated[1]}
    causal = record is not None and record.layers is not None and record.layers.causal
    return causal and config.get("is_causal") is not False


def weight_bytes(card: ModelCard) -> int | None:
    """Return the bytes of the weights: of the index, or of the files themselves; None if they are not here."""
    try:
        index = json.loads((card.path / "model.safetensors.index.json").read_bytes())
        return int(index["metadata"]["total_size"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    sizes = [
        (card.path / name).stat().st_size
        for name in card.files
        if name.endswith(".safetensors") and "/" not in name and (card.path / name).is_file()
    ]
    return sum(sizes) or None
