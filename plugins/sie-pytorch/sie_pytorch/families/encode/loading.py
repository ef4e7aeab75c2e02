"""Loads a text encoder by its recipe."""

from __future__ import annotations

from dataclasses import replace

from sie_text.loading import declared_outputs, needed_card
from sie_text.recipe import NotUnderstoodError, SpladeSettings, is_sparse_router, read_recipe, read_routes
from sie_text.static import LookupEncoder, RoutedEncoder

from sie_core.contracts import Adapter, LoadContext
from sie_pytorch.heads import compose, head_makers
from sie_pytorch.heads.composed.compose import unfit


def load(context: LoadContext) -> Adapter:
    """Load the model.

    Raises:
        FamilyUnfitError: Its files ask for something this family does not do; sentence-transformers may.
        ModelLoadError: With the failure's class.
        OutOfDeviceMemory: The device has no room.
    """
    try:
        return _load_routes(context) if is_sparse_router(needed_card(context)) else _load_encoder(context)
    except NotUnderstoodError as reason:
        raise unfit(context, reason) from reason


def _load_routes(context: LoadContext) -> Adapter:
    routes = read_routes(needed_card(context))
    lookup = LookupEncoder.read(context, routes.lookup)
    if routes.encoder is None:
        return lookup
    encoder = _load_encoder(replace(context, weights=routes.encoder.path, card=routes.encoder))
    return RoutedEncoder(lookup, encoder, routes.looked_up, routes.default)


def _load_encoder(context: LoadContext) -> Adapter:
    config = context.model.config
    recipe = read_recipe(needed_card(context), declared_outputs(config), config.pickles)
    masked = ("AutoModelForMaskedLM",) if isinstance(recipe.sparse, SpladeSettings) else ()
    return compose(context, recipe, head_makers(recipe), auto_classes=masked)
