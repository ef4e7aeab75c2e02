"""Which weights the family `pytorch` claims, and the reason an operator reads.

It reads the card alone and imports no model library. Score heads are not ours to claim: their files look much like an
encoder's, and pooling them would give vectors that mean nothing.
"""

from __future__ import annotations

from sie_text.recipe import (
    STANFORD,
    NotUnderstoodError,
    Recipe,
    SpladeSettings,
    is_cross_encoder,
    is_dense_encoder,
    is_headless,
    is_multivector,
    is_router,
    is_sparse_router,
    read_recipe,
    read_routes,
)

from sie_core.contracts import Claim, ModelCard
from sie_pytorch.forward.architectures import is_encoder

PRIORITY = 0
PLAIN_SPLADE_PRIORITY = -50
"""A plain checkpoint with a masked-language-modelling head may be anything: a family that knows better goes first."""


def claim_encoder(card: ModelCard) -> Claim | None:
    """Claim what the packed text encoder has heads for."""
    if is_cross_encoder(card) or any(".cross_encoder." in module.type for module in card.modules):
        return None
    try:
        if is_sparse_router(card):
            return None if read_routes(card).encoder is None else Claim(_routes(card), PRIORITY)
        recipe = read_recipe(card)
    except NotUnderstoodError:
        return _claim_unseen(card)
    if recipe.pooling is not None and not is_dense_encoder(card):
        return None
    if recipe.declared:
        return Claim(f"its modules.json chains {_chain(card, recipe)}", PRIORITY)
    if recipe.multivector is not None:
        return Claim(f"its config.json names {STANFORD}, ColBERT in Stanford's layout", PRIORITY)
    if isinstance(recipe.sparse, SpladeSettings) and is_encoder(card.model_type):
        return Claim(
            f"it is a plain {card.model_type} checkpoint with a masked-language-modelling head, served as SPLADE, "
            "though its files do not say that it was trained as one",
            PLAIN_SPLADE_PRIORITY,
        )
    if is_encoder(card.model_type) and is_headless(card):
        return Claim(f"it is a plain {card.model_type} encoder, served as {_chain(card, recipe)}", PRIORITY)
    return None


def _claim_unseen(card: ModelCard) -> Claim | None:
    """Claim by their names alone modules whose configs nobody has seen yet: the weights are not here."""
    if not (is_multivector(card) or is_router(card)) or any(name.endswith(".safetensors") for name in card.files):
        return None
    return Claim(f"its modules are said to be {' → '.join(module.kind for module in card.modules)}", PRIORITY)


def _routes(card: ModelCard) -> str:
    """Word which texts are looked up."""
    routes = read_routes(card)
    looked_up, encoded = ("query", "document") if "query" in routes.looked_up else ("document", "query")
    return (
        f"its Router looks a {looked_up}'s weights up (SparseStaticEmbedding) and encodes a {encoded} (SpladePooling)"
    )


def _chain(card: ModelCard, recipe: Recipe) -> str:
    """Word the chain of modules, with what a pooling does."""
    if recipe.pooling is not None:
        pooling = f"Pooling({' + '.join(recipe.pooling.modes)})"
        chain = " → ".join(("Transformer", pooling, *(module.kind for module in card.modules[2:])))
        beside = [name for name, given in (("sparse", recipe.sparse), ("multi-vector", recipe.multivector)) if given]
        return f"{chain}, with BGE-M3's {' and '.join(beside)} layers beside" if beside else chain
    if isinstance(recipe.sparse, SpladeSettings):
        return f"Transformer → SpladePooling({recipe.sparse.pooling} of {recipe.sparse.activation})"
    kinds = " → ".join(module.kind for module in card.modules)
    return f"{kinds}, a vector a token" if recipe.multivector is not None else kinds
