"""Turns a recipe into the makers of its heads: every kind of head that checkpoints' files ask for."""

from __future__ import annotations

from functools import partial

import torch
from sie_text.heads import skipped_ids
from sie_text.recipe import MultivectorSettings, PoolingSettings, Recipe, SpladeSettings, TokenWeightSettings

from sie_pytorch.heads.protocol import Head, HeadContext, HeadMaker
from sie_pytorch.heads.sparse.token_weights import TokenWeightHead
from sie_pytorch.heads.vectors.dense import DenseHead
from sie_pytorch.heads.vectors.multivector import MultivectorHead
from sie_pytorch.heads.vectors.steps import Steps, load_projection
from sie_pytorch.settings import tried


def head_makers(recipe: Recipe) -> list[HeadMaker]:
    """List the makers of a recipe's heads, for `compose`. Each raises `ModelLoadError` if its weights do not fit.

    Args:
        recipe: The files' recipe.
    """
    makers: list[HeadMaker] = []
    if recipe.pooling is not None:
        makers.append(partial(_dense, recipe, recipe.pooling))
    if isinstance(recipe.sparse, SpladeSettings):
        makers.append(partial(_splade, recipe.sparse))
    if isinstance(recipe.sparse, TokenWeightSettings):
        makers.append(partial(_token_weights, recipe.sparse))
    if recipe.multivector is not None:
        makers.append(partial(_multivector, recipe.multivector))
    return makers


def _dense(recipe: Recipe, pooling: PoolingSettings, context: HeadContext) -> Head:
    size = context.hidden_size
    steps = Steps.load(recipe.head, len(pooling.modes) * size, context.device, recipe.truncate_dim)
    return DenseHead(pooling, steps, size)


def _token_weights(settings: TokenWeightSettings, context: HeadContext) -> Head:
    return TokenWeightHead(settings, load_projection(settings.projection).to(context.device), context)


def _multivector(settings: MultivectorSettings, context: HeadContext) -> Head:
    steps = Steps.load(settings.steps, context.hidden_size, context.device)
    return MultivectorHead(settings, skipped_ids(settings, context), steps)


def _splade(settings: SpladeSettings, context: HeadContext) -> Head:
    # Imports transformers, which takes longer than the other heads' weights.
    from sie_pytorch.heads.own_class.masked_language import load_masked_language_head
    from sie_pytorch.heads.sparse.splade import SegmentedSpladeHead, SpladeHead

    # A vocabulary's layer is as large as some transformers: it computes in their precision.
    dtype = getattr(torch, context.precision)
    head = load_masked_language_head(context.card.path, dtype, context.device, context.card.records)
    segmented = context.device.type == "cuda" and tried("splade")
    return SegmentedSpladeHead(settings, head) if segmented else SpladeHead(settings, head)
