"""Which weights the two families claim, and the reason an operator reads.

It reads the card alone and imports no model library. Score heads are not ours to claim: their files look much like an
encoder's, and pooling them would give vectors that mean nothing.
"""

from __future__ import annotations

from sie_core.contracts import Claim, ModelCard
from sie_pytorch.recipe import NotUnderstoodError, Recipe, has_tokenizer, read_recipe
from sie_pytorch.recipes.multivector import STANFORD, is_multivector
from sie_pytorch.recipes.router import is_router, is_sparse_router, read_routes
from sie_pytorch.recipes.settings import SpladeSettings

PRIORITY = 0
PLAIN_SPLADE_PRIORITY = -50
"""A plain checkpoint with a masked-language-modelling head may be anything: a family that knows better goes first."""
FALLBACK_PRIORITY = -100

PLAIN_ENCODERS = frozenset(
    {
        "albert", "bert", "camembert", "convbert", "data2vec-text", "deberta", "deberta-v2", "distilbert", "electra",
        "ernie", "eurobert", "gemma3_text", "gte", "ibert", "jina_embeddings_v3", "llama", "megatron-bert", "mistral",
        "mobilebert", "modernbert", "mpnet", "mt5", "new", "nomic_bert", "phi3", "qwen2", "qwen3", "rembert",
        "roberta", "roberta-prelayernorm", "roc_bert", "roformer", "squeezebert", "t5", "umt5", "xlm-roberta",
        "xlm-roberta-xl", "xmod",
    }
)  # fmt: skip
"""transformers model types of text encoders, for checkpoints without sentence-transformers' files."""

OTHER_HEADS = (".sparse_encoder.", ".cross_encoder.", ".multi_vector_encoder.")
OTHER_MODELS = ("CrossEncoder",)
"""Values of `model_type` in `config_sentence_transformers.json` that are not ours."""


def claim_encoder(card: ModelCard) -> Claim | None:
    """Claim what the packed text encoder has heads for."""
    if card.sentence_transformers.get("model_type") in OTHER_MODELS or _names(card, ".cross_encoder."):
        return None
    try:
        if is_sparse_router(card):
            return Claim(_routes(card), PRIORITY)
        recipe = read_recipe(card)
    except NotUnderstoodError:
        return _claim_unseen(card)
    if recipe.pooling is not None and not is_dense(card):
        return None
    if recipe.declared:
        return Claim(f"its modules.json chains {_chain(card, recipe)}", PRIORITY)
    if recipe.multivector is not None:
        return Claim(f"its config.json names {STANFORD}, ColBERT in Stanford's layout", PRIORITY)
    if isinstance(recipe.sparse, SpladeSettings) and card.model_type in PLAIN_ENCODERS:
        return Claim(
            f"it is a plain {card.model_type} checkpoint with a masked-language-modelling head, served as SPLADE, "
            "though its files do not say that it was trained as one",
            PLAIN_SPLADE_PRIORITY,
        )
    if card.model_type in PLAIN_ENCODERS and _is_headless(card):
        return Claim(f"it is a plain {card.model_type} encoder, served as {_chain(card, recipe)}", PRIORITY)
    return None


def _claim_unseen(card: ModelCard) -> Claim | None:
    """Claim by their names alone modules whose configs nobody has seen yet: the weights are not here."""
    if not (is_multivector(card) or is_router(card)) or any(name.endswith(".safetensors") for name in card.files):
        return None
    return Claim(f"its modules are said to be {' → '.join(module.kind for module in card.modules)}", PRIORITY)


def claim_fallback(card: ModelCard) -> Claim | None:
    """Claim what sentence-transformers may load as a dense encoder, below every other family."""
    if not is_dense(card):
        return None
    if card.modules:
        kinds = " → ".join(module.kind for module in card.modules)
        return Claim(f"sentence-transformers may load its modules.json ({kinds}), padded", FALLBACK_PRIORITY)
    if card.model_type and _is_headless(card) and has_tokenizer(card):
        return Claim(f"sentence-transformers may load a plain {card.model_type} checkpoint, padded", FALLBACK_PRIORITY)
    return None


def is_dense(card: ModelCard) -> bool:
    """Whether the files are those of a dense encoder, or of a plain checkpoint."""
    if card.sentence_transformers.get("model_type", "SentenceTransformer") != "SentenceTransformer":
        return False
    if is_sparse_router(card) or any(module.type.startswith("pylate.") for module in card.modules):
        return False
    return not _names(card, *OTHER_HEADS)


def _names(card: ModelCard, *parts: str) -> bool:
    return any(part in module.type for module in card.modules for part in parts)


def _is_headless(card: ModelCard) -> bool:
    """Whether the checkpoint was saved from a base model.

    One saved with a language-modelling or classification head may be anything: BERT's and SPLADE's say the same.
    """
    return bool(card.architectures) and all(name.endswith(("Model", "Encoder")) for name in card.architectures)


def _routes(card: ModelCard) -> str:
    """Word which texts are looked up."""
    routes = read_routes(card)
    if routes.encoder is None:
        return "its modules.json looks up the weights of every token (SparseStaticEmbedding)"
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
