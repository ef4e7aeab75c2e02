"""From a recipe to its heads. It knows each kind of head, and no request."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from sie_core.contracts import OutputType
from sie_pytorch.heads.dense import DenseHead
from sie_pytorch.heads.multivector import MultivectorHead
from sie_pytorch.heads.protocol import Head
from sie_pytorch.heads.token_weights import TokenWeightHead
from sie_pytorch.recipes.settings import Recipe, SpladeSettings, TokenWeightSettings
from sie_pytorch.tokenizer import TextTokenizer

if TYPE_CHECKING:
    from sie_pytorch.heads.splade import SpladeHead


def build_heads(
    recipe: Recipe, folder: Path, tokenizer: TextTokenizer, hidden_size: int, precision: str, device: torch.device
) -> dict[OutputType, Head]:
    """Load the heads of a recipe onto `device`, by the output each makes.

    Args:
        recipe: What the files say.
        folder: Where the transformer's checkpoint lies.
        tokenizer: Says which tokens count.
        hidden_size: Of the states.
        precision: What the transformer computes in; a vocabulary's layer, as large as some transformers, does too.
        device: Where the states are.

    Raises:
        ModelLoadError: Weights are missing or do not fit.
    """
    heads: list[Head] = []
    if recipe.pooling is not None:
        heads.append(DenseHead(recipe.pooling, recipe.head, recipe.truncate_dim, hidden_size, device))
    if isinstance(recipe.sparse, SpladeSettings):
        heads.append(_splade(recipe.sparse, folder, precision, device))
    if isinstance(recipe.sparse, TokenWeightSettings):
        vocabulary = tokenizer.embedded or tokenizer.vocabulary
        heads.append(TokenWeightHead(recipe.sparse, hidden_size, vocabulary, sorted(tokenizer.weightless), device))
    if recipe.multivector is not None:
        known = map(tokenizer.core.token_to_id, recipe.multivector.skiplist)
        skipped = [number for number in known if number is not None]
        heads.append(MultivectorHead(recipe.multivector, skipped, hidden_size, device))
    return {head.output: head for head in heads}


def _splade(settings: SpladeSettings, folder: Path, precision: str, device: torch.device) -> SpladeHead:
    # Imports transformers, which takes longer than the other heads' weights.
    from sie_pytorch.heads.masked_language import load_masked_language_head
    from sie_pytorch.heads.splade import SpladeHead

    return SpladeHead(settings, load_masked_language_head(folder, getattr(torch, precision), device))
