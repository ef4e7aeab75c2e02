"""Which weights the two families claim, and the reason an operator reads.

It reads the card alone and imports no model library. Sparse, multi-vector and score heads are not ours to claim: their
files look much like an encoder's, and pooling them would give vectors that mean nothing.
"""

from __future__ import annotations

from sie_core.contracts import Claim, ModelCard
from sie_pytorch.recipe import NotUnderstoodError, has_tokenizer, read_recipe

PRIORITY = 0
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


def claim_encoder(card: ModelCard) -> Claim | None:
    """Claim what the packed text encoder has heads for."""
    if not _is_dense(card):
        return None
    try:
        recipe = read_recipe(card)
    except NotUnderstoodError:
        return None
    chain = " → ".join(("Transformer", f"Pooling({' + '.join(recipe.pooling.modes)})", *_head_names(card)))
    if recipe.declared:
        return Claim(f"its modules.json chains {chain}", PRIORITY)
    if card.model_type in PLAIN_ENCODERS and _is_headless(card):
        return Claim(f"it is a plain {card.model_type} encoder, served as {chain}", PRIORITY)
    return None


def claim_fallback(card: ModelCard) -> Claim | None:
    """Claim what sentence-transformers may load as a dense encoder, below every other family."""
    if not _is_dense(card):
        return None
    if card.modules:
        kinds = " → ".join(module.kind for module in card.modules)
        return Claim(f"sentence-transformers may load its modules.json ({kinds}), padded", FALLBACK_PRIORITY)
    if card.model_type and _is_headless(card) and has_tokenizer(card):
        return Claim(f"sentence-transformers may load a plain {card.model_type} checkpoint, padded", FALLBACK_PRIORITY)
    return None


def _is_dense(card: ModelCard) -> bool:
    """Whether the files are those of a dense encoder, or of a plain checkpoint."""
    if card.sentence_transformers.get("model_type", "SentenceTransformer") != "SentenceTransformer":
        return False
    return not any(
        module.type.startswith("pylate.") or any(other in module.type for other in OTHER_HEADS)
        for module in card.modules
    )


def _is_headless(card: ModelCard) -> bool:
    """Whether the checkpoint was saved from a base model.

    One saved with a language-modelling or classification head may be anything: BERT's and SPLADE's say the same.
    """
    return bool(card.architectures) and all(name.endswith(("Model", "Encoder")) for name in card.architectures)


def _head_names(card: ModelCard) -> list[str]:
    return [module.kind for module in card.modules[2:]]
