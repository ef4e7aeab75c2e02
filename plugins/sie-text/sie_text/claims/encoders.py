"""The claims of a family of text encoders, with a reason for operators.

It reads the card alone and imports no model library. Score heads are not claimed: their files look like an encoder's,
and pooling them would give meaningless vectors.
"""

from __future__ import annotations

from sie_core.contracts import Claim, ModelCard, ModelLoadError, NoClaim
from sie_text.architectures import is_encoder, translate
from sie_text.recipe import (
    STANFORD,
    VISION_ARCHITECTURES,
    NotUnderstoodError,
    Recipe,
    SpladeSettings,
    foreign_class,
    is_cross_encoder,
    is_dense_encoder,
    is_headless,
    is_multivector,
    is_router,
    is_sparse_router,
    read_recipe,
    read_routes,
)

PRIORITY = 0
PLAIN_SPLADE_PRIORITY = -50
"""A plain checkpoint with a masked-language-modelling head may be anything, so more specific families go first."""
OTHERS = ("CLIPModel", "StaticEmbedding")
"""First modules of chains that other families serve."""
OTHER_HEADS = {
    "ForQuestionAnswering": "finds answers in a text, which no family does yet",
    "ForConditionalGeneration": "generates text, which no family does",
}
"""Purposes of classes without a head in any family, by the suffixes of their names."""


def claim_encoder(card: ModelCard) -> Claim | NoClaim | None:
    """Claim checkpoints for which the packed text encoder has heads."""
    if is_cross_encoder(card) or any(".cross_encoder." in module.type for module in card.modules):
        return None
    try:
        if is_sparse_router(card):
            return None if read_routes(card).encoder is None else Claim(_routes(card), PRIORITY)
        recipe = read_recipe(card)
    except NotUnderstoodError as reason:
        return _claim_unseen(card) or _refuse(card, reason)
    if recipe.pooling is not None and not is_dense_encoder(card):
        return None
    if recipe.declared:
        return Claim(f"its modules.json chains {_chain(card, recipe)}", PRIORITY)
    if recipe.multivector is not None:
        return Claim(f"its config.json names {STANFORD}, ColBERT in Stanford's layout", PRIORITY)
    if isinstance(recipe.sparse, SpladeSettings) and is_encoder(card):
        return Claim(
            f"it is a plain {card.model_type} checkpoint with a masked-language-modelling head, served as SPLADE, "
            "though its files do not say that it was trained as one",
            PLAIN_SPLADE_PRIORITY,
        )
    if is_encoder(card) and is_headless(card):
        if other := foreign_class(card):
            return NoClaim(f"it was saved from {other}, which is no text encoder of the type {card.model_type}")
        return Claim(f"it is a plain {card.model_type} encoder, served as {_chain(card, recipe)}", PRIORITY)
    return _refuse_head(card)


def _refuse(card: ModelCard, reason: NotUnderstoodError) -> NoClaim | None:
    """Explain why files that may be a text encoder's are not served."""
    first = card.modules[0].kind if card.modules else None
    if first in OTHERS or card.model_type in VISION_ARCHITECTURES:
        return None
    try:
        translate(card.config, card.records)
    except ModelLoadError as known:
        return NoClaim(str(known).rstrip("."))
    return NoClaim(str(reason))


def _refuse_head(card: ModelCard) -> NoClaim | None:
    """Describe the head of a plain checkpoint that no family serves."""
    saved = next((name for name in card.architectures if name.endswith(tuple(OTHER_HEADS))), None)
    if saved is None or card.modules:
        return None
    does = next(does for ending, does in OTHER_HEADS.items() if saved.endswith(ending))
    return NoClaim(f"it was saved from {saved}, which {does}")


def _claim_unseen(card: ModelCard) -> Claim | None:
    """Claim modules by their names alone while their configs are unknown: the weights are not here."""
    if not (is_multivector(card) or is_router(card)) or any(name.endswith(".safetensors") for name in card.files):
        return None
    return Claim(f"its modules are said to be {' → '.join(module.kind for module in card.modules)}", PRIORITY)


def _routes(card: ModelCard) -> str:
    """Describe which texts are looked up."""
    routes = read_routes(card)
    looked_up, encoded = ("query", "document") if "query" in routes.looked_up else ("document", "query")
    return (
        f"its Router looks a {looked_up}'s weights up (SparseStaticEmbedding) and encodes a {encoded} (SpladePooling)"
    )


def _chain(card: ModelCard, recipe: Recipe) -> str:
    """Describe the chain of modules, including the pooling modes."""
    if recipe.pooling is not None:
        pooling = f"Pooling({' + '.join(recipe.pooling.modes)})"
        chain = " → ".join(("Transformer", pooling, *(module.kind for module in card.modules[2:])))
        beside = [name for name, given in (("sparse", recipe.sparse), ("multi-vector", recipe.multivector)) if given]
        return f"{chain}, with BGE-M3's {' and '.join(beside)} layers beside" if beside else chain
    if isinstance(recipe.sparse, SpladeSettings):
        return f"Transformer → SpladePooling({recipe.sparse.pooling} of {recipe.sparse.activation})"
    kinds = " → ".join(module.kind for module in card.modules)
    return f"{kinds}, a vector a token" if recipe.multivector is not None else kinds
