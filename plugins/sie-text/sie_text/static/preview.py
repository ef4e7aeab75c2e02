"""Predicts the facts of a load of static vectors, as far as small files tell."""

from __future__ import annotations

from sie_core.contracts import ModelCard, ModelConfig, ModelFacts
from sie_text.loading import matryoshka_dims
from sie_text.recipe import NotUnderstoodError, is_sparse_router, read_routes
from sie_text.recipe.static import TABLES, read_static_recipe
from sie_text.static.tables import table_shape


def preview_static(card: ModelCard, config: ModelConfig) -> ModelFacts | None:
    """Preview a model of static vectors."""
    try:
        if is_sparse_router(card):
            shape = table_shape(read_routes(card).lookup.folder, ("weight",))
            return ModelFacts(("sparse",), dims={"sparse": shape[0]} if shape else {})
        recipe = read_static_recipe(card)
    except NotUnderstoodError:
        return None
    length = config.max_sequence_length or recipe.length
    shape = table_shape(recipe.card.path, TABLES)
    if shape is None or len(shape) != 2:
        return ModelFacts(("dense",), max_sequence_length=length)
    dims = min(shape[1], recipe.truncate_dim or shape[1])
    sizes = matryoshka_dims(config, card, dims)
    return ModelFacts(("dense",), dims={"dense": dims}, matryoshka_dims=sizes, max_sequence_length=length)
