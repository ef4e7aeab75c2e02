"""Reads files of static vectors: the location of the table, and the steps after the mean of a text's rows.

Supports model2vec's own files, and sentence-transformers' `StaticEmbedding`, optionally followed by `Normalize`.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from sie_core.contracts import Claim, ModelCard
from sie_text.recipe.encoders.router import is_sparse_router, read_routes
from sie_text.recipe.files import card_below, size
from sie_text.recipe.settings import NotUnderstoodError

MODEL2VEC = "model2vec"
EMBEDDING = "StaticEmbedding"
TABLES = ("embedding.weight", "embeddings")
"""Names of the table: of sentence-transformers, and of model2vec."""
PRIORITY = 10
"""Above families that would run the same vectors with a heavy library."""
MODEL2VEC_LENGTH = 512
"""Tokens that model2vec keeps if its config names no `max_length`."""


@dataclass(frozen=True, slots=True)
class StaticRecipe:
    """A table of vectors by token; a text's vector is the average of its tokens' rows."""

    card: ModelCard
    """Card of the folder that holds the table and `tokenizer.json`."""
    normalizes: bool
    """Whether vectors get unit length."""
    length: int | None
    """Tokens a text may have by the files; None for what `tokenizer.json` says, or no limit."""
    _: KW_ONLY
    drops_unknown: bool
    """Whether unknown tokens are left out of the mean, as in model2vec."""
    reason: str
    """The reason for operators."""
    truncate_dim: int | None = None
    """The size to which sentence-transformers cuts vectors, if the files state one."""


def read_static_recipe(card: ModelCard) -> StaticRecipe:
    """Read a model of static vectors.

    model2vec writes files for both libraries; its own `config.json` then wins, because its library reads that.

    Raises:
        NotUnderstoodError: The files are not of a static model.
    """
    if card.model_type == MODEL2VEC or "StaticModel" in card.architectures:
        length = card.config.get("max_length", MODEL2VEC_LENGTH)
        normalizes = bool(card.config.get("normalize", False))
        return StaticRecipe(card, normalizes, length, drops_unknown=True, reason="its config.json is model2vec's")
    kinds = [module.kind for module in card.modules]
    chain = " → ".join(kinds)
    known = all(module.type.startswith("sentence_transformers.") for module in card.modules)
    if not known or kinds not in ([EMBEDDING], [EMBEDDING, "Normalize"]):
        raise NotUnderstoodError(f"modules.json chains {chain or 'nothing'}, no static vectors alone")
    if card.sentence_transformers.get("model_type", "SentenceTransformer") != "SentenceTransformer":
        raise NotUnderstoodError(f"it is a {card.sentence_transformers['model_type']}")
    truncate_dim = size(card.sentence_transformers, "truncate_dim", "config_sentence_transformers.json")
    below = card_below(card, card.modules[0].path)
    return StaticRecipe(
        below,
        len(kinds) > 1,
        None,
        drops_unknown=False,
        reason=f"its modules.json chains {chain}",
        truncate_dim=truncate_dim,
    )


def claim_static(card: ModelCard) -> Claim | None:
    """Claim tables of dense vectors, and sparse encoders that look every text up."""
    try:
        if is_sparse_router(card):
            everything = read_routes(card).encoder is None
            reason = "its modules.json looks up the weights of every token (SparseStaticEmbedding)"
            return Claim(reason, PRIORITY) if everything else None
        return Claim(f"{read_static_recipe(card).reason}, vectors looked up by token", PRIORITY)
    except NotUnderstoodError:
        return None
