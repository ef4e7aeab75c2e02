"""Reads the text encoder that a checkpoint's files describe: its modules, and its kinds of vectors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sie_core.contracts import ModelCard, ModuleCard, PinnedFile
from sie_text.recipe.encoders.bge_m3 import add_bge_m3
from sie_text.recipe.encoders.dense import default_mode, pooling_settings, step_settings
from sie_text.recipe.encoders.multivector import is_multivector, multivector_recipe
from sie_text.recipe.files import size
from sie_text.recipe.settings import NotUnderstoodError, PoolingSettings, Recipe, SpladeSettings
from sie_text.recipe.transformer import LOGITS, refuse_expansion, transformer_settings

SPLADE_ENCODERS = ("MLMTransformer", "Transformer")
"""First modules of a SPLADE chain; the first name is of older files."""


def read_recipe(
    card: ModelCard, declared: Collection[str] = (), pickles: Mapping[str, PinnedFile] = MappingProxyType({})
) -> Recipe:
    """Read the recipe of a text encoder from its card.

    Args:
        card: The facts of the files.
        declared: The outputs that the model's config declares. They decide if the files leave it open: a plain
            checkpoint with a masked-language-modelling head is mean-pooled if only dense vectors are wanted.
        pickles: The pickled files that the model's config pins.

    Raises:
        NotUnderstoodError: The files ask for something that this family does not do.
    """
    if card.modules and card.modules[0].path != card.path:
        raise NotUnderstoodError("modules.json keeps its Transformer in a folder of its own")
    if is_multivector(card):
        return multivector_recipe(card)
    for module in card.modules:
        if not module.type.startswith("sentence_transformers."):
            raise NotUnderstoodError(f"modules.json names {module.type}, a class of its own")
    wants_dense = "dense" in declared and "sparse" not in declared
    if is_splade(card.modules) or (_is_plain_splade(card) and not wants_dense):
        return _splade_recipe(card, card.modules)
    return add_bge_m3(_dense_recipe(card), card, pickles)


def is_splade(modules: Sequence[ModuleCard]) -> bool:
    """Whether a chain of modules ends in SPLADE's pooling."""
    return bool(modules) and modules[-1].kind == "SpladePooling"


def _dense_recipe(card: ModelCard) -> Recipe:
    truncate_dim = size(card.sentence_transformers, "truncate_dim", "config_sentence_transformers.json")
    if not card.modules:
        return Recipe(pooling=PoolingSettings((default_mode(card),)), truncate_dim=truncate_dim, declared=False)
    kinds = [module.kind for module in card.modules]
    if kinds[:2] != ["Transformer", "Pooling"]:
        raise NotUnderstoodError(f"modules.json chains {' → '.join(kinds)}, not Transformer → Pooling → …")
    refuse_expansion(card.modules[0].config)
    return Recipe(
        transformer_settings(card.modules[0].config),
        pooling_settings(card.modules[1].config),
        tuple(step for module in card.modules[2:] for step in step_settings(module)),
        truncate_dim=truncate_dim,
    )


def _is_plain_splade(card: ModelCard) -> bool:
    """Whether a checkpoint without `modules.json` was saved with a masked-language-modelling head."""
    return not card.modules and any(name.endswith("ForMaskedLM") for name in card.architectures)


def _splade_recipe(card: ModelCard, modules: Sequence[ModuleCard]) -> Recipe:
    """Read a chain of a transformer and SPLADE's pooling; without modules, what `SparseEncoder` makes of a checkpoint.

    Raises:
        NotUnderstoodError: The chain has another form, or one of its modules asks for something else.
    """
    most = size(card.sentence_transformers, "max_active_dims", "config_sentence_transformers.json")
    if not modules:
        return Recipe(pooling=None, sparse=SpladeSettings(max_active_dims=most), declared=False)
    kinds = [module.kind for module in modules]
    if len(kinds) != 2 or kinds[0] not in SPLADE_ENCODERS:
        raise NotUnderstoodError(f"modules.json chains {' → '.join(kinds)}, not Transformer → SpladePooling")
    first, last = modules
    refuse_expansion(first.config)
    return Recipe(transformer_settings(first.config, LOGITS), pooling=None, sparse=_splade_pooling(last.config, most))


def _splade_pooling(config: Mapping[str, Any], most: int | None) -> SpladeSettings:
    pooling, activation = config.get("pooling_strategy", "max"), config.get("activation_function", "relu")
    if pooling not in ("max", "sum"):
        raise NotUnderstoodError(f"its SpladePooling pools by {pooling!r}")
    if activation not in ("relu", "log1p_relu"):
        raise NotUnderstoodError(f"its SpladePooling names the activation {activation!r}")
    return SpladeSettings(pooling, activation, most)
