"""The claims of the family, with a reason for operators. It reads the card alone and imports no model library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sie_text.architectures import architecture_of, translate
from sie_text.recipe import NormalizeSettings, NotUnderstoodError, Recipe, read_recipe

from sie_core.contracts import Claim, ModelCard, ModelLoadError

READ_AT = "0.5.23"
"""The release of sglang whose registry, routes and arguments this plugin was written against."""
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
    if not set(card.architectures[:1]) & EMBEDDERS:
        return None
    try:
        recipe = read_recipe(card)
    except NotUnderstoodError:
        return None
    if unfit(card, recipe) is not None:
        return None
    size = weight_bytes(card)
    large = size is not None and size > LARGE
    why = f"SGLang has {card.architectures[0]}, and the vector is the last token's state at unit length"
    return Claim(
        f"{why}; at {size / 1e9:.0f} GB it comes before smaller engines" if large and size else why,
        LARGE_PRIORITY if large else PRIORITY,
    )


def unfit(card: ModelCard, recipe: Recipe) -> str | None:
    """Say why the engine does not compute a recipe; None if it does."""
    if recipe.pooling is None or recipe.pooling.modes != ("lasttoken",):
        return "the engine pools by the last token alone"
    if len(recipe.head) != 1 or not isinstance(recipe.head[0], NormalizeSettings):
        return "the engine gives vectors at unit length, and the files ask for other steps after the pooling"
    if recipe.truncate_dim is not None:
        return "the files cut every vector"
    return None if is_causal(card) else "its attention is not causal, and the engine's is"


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
