"""What the files of a checkpoint say a text encoder is: its transformer's settings, and its heads.

It reads the card alone, loads no weights and imports no model library; what it cannot express it refuses by name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatch
from types import MappingProxyType

from sie_core.contracts import ModelCard, PinnedFile
from sie_pytorch.recipes.bge_m3 import add_bge_m3
from sie_pytorch.recipes.dense import ACTIVATIONS, LEGACY_POOLING, default_mode, pooling_settings, step_settings
from sie_pytorch.recipes.fields import size
from sie_pytorch.recipes.multivector import is_multivector, multivector_recipe
from sie_pytorch.recipes.settings import (
    MODES,
    DenseSettings,
    HeadSettings,
    LayerNormSettings,
    NormalizeSettings,
    NotUnderstoodError,
    PoolingMode,
    PoolingSettings,
    Recipe,
    TransformerSettings,
)
from sie_pytorch.recipes.sparse import is_plain_splade, is_splade, splade_recipe
from sie_pytorch.recipes.transformer import refuse_expansion, transformer_settings

__all__ = [
    "ACTIVATIONS",
    "LEGACY_POOLING",
    "MODES",
    "DenseSettings",
    "HeadSettings",
    "LayerNormSettings",
    "NormalizeSettings",
    "NotUnderstoodError",
    "PoolingMode",
    "PoolingSettings",
    "Recipe",
    "TransformerSettings",
    "has_tokenizer",
    "read_recipe",
]

TOKENIZER_FILES = ("tokenizer.json", "vocab.*", "*.model", "tekken.json", "*.tiktoken")
"""Names of the files a tokenizer of transformers is built from."""


def read_recipe(
    card: ModelCard, declared: Collection[str] = (), pickles: Mapping[str, PinnedFile] = MappingProxyType({})
) -> Recipe:
    """Read the recipe of a text encoder from its card.

    Args:
        card: The facts of the files.
        declared: The outputs that the model's config declares. They decide where the files leave it open: a plain
            checkpoint with a masked-language-modelling head is pooled by its mean if only dense vectors are wanted.
        pickles: The pickled files that the model's config pins.

    Raises:
        NotUnderstoodError: The files ask for something this family does not do.
    """
    if card.modules and card.modules[0].path != card.path:
        raise NotUnderstoodError("modules.json keeps its Transformer in a folder of its own")
    if is_multivector(card):
        return multivector_recipe(card)
    for module in card.modules:
        if not module.type.startswith("sentence_transformers."):
            raise NotUnderstoodError(f"modules.json names {module.type}, a class of its own")
    wants_dense = "dense" in declared and "sparse" not in declared
    if is_splade(card.modules) or (is_plain_splade(card) and not wants_dense):
        return splade_recipe(card, card.modules)
    return add_bge_m3(_dense_recipe(card), card, pickles)


def has_tokenizer(card: ModelCard) -> bool:
    """Whether the files of a tokenizer are there; without them transformers builds one that knows no word."""
    return any(fnmatch(name, pattern) for name in card.files if "/" not in name for pattern in TOKENIZER_FILES)


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
        truncate_dim,
    )
