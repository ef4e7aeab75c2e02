"""Sparse encoders of sentence-transformers, and plain checkpoints with a masked-language-modelling head (SPLADE)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sie_core.contracts import ModelCard, ModuleCard
from sie_pytorch.recipes.fields import size
from sie_pytorch.recipes.settings import NotUnderstoodError, Recipe, SpladeSettings
from sie_pytorch.recipes.transformer import LOGITS, refuse_expansion, transformer_settings

ENCODERS = ("MLMTransformer", "Transformer")
"""What comes first in the chain; the one name is of older files."""


def is_splade(modules: Sequence[ModuleCard]) -> bool:
    """Whether a chain of modules ends in SPLADE's pooling."""
    return bool(modules) and modules[-1].kind == "SpladePooling"


def is_plain_splade(card: ModelCard) -> bool:
    """Whether a checkpoint without `modules.json` was saved with a masked-language-modelling head."""
    return not card.modules and any(name.endswith("ForMaskedLM") for name in card.architectures)


def splade_recipe(card: ModelCard, modules: Sequence[ModuleCard]) -> Recipe:
    """Read a chain of a transformer and SPLADE's pooling; without modules, what `SparseEncoder` makes of a checkpoint.

    Raises:
        NotUnderstoodError: The chain is another, or one of its modules asks for something else.
    """
    most = size(card.sentence_transformers, "max_active_dims", "config_sentence_transformers.json")
    if not modules:
        return Recipe(pooling=None, sparse=SpladeSettings(max_active_dims=most), declared=False)
    kinds = [module.kind for module in modules]
    if len(kinds) != 2 or kinds[0] not in ENCODERS:
        raise NotUnderstoodError(f"modules.json chains {' → '.join(kinds)}, not Transformer → SpladePooling")
    first, last = modules
    refuse_expansion(first.config)
    return Recipe(transformer_settings(first.config, LOGITS), pooling=None, sparse=_pooling(last.config, most))


def _pooling(config: Mapping[str, Any], most: int | None) -> SpladeSettings:
    pooling, activation = config.get("pooling_strategy", "max"), config.get("activation_function", "relu")
    if pooling not in ("max", "sum"):
        raise NotUnderstoodError(f"its SpladePooling pools by {pooling!r}")
    if activation not in ("relu", "log1p_relu"):
        raise NotUnderstoodError(f"its SpladePooling names the activation {activation!r}")
    return SpladeSettings(pooling, activation, most)
