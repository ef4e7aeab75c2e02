"""Which weights the family of pairwise models claims, and the reason an operator reads. It reads the card alone."""

from __future__ import annotations

from sie_core.contracts import Claim, ModelCard
from sie_pytorch.recipe import NotUnderstoodError
from sie_pytorch.scoring.layout import is_cross_encoder, read_layout

PRIORITY = 0

CLASSIFIERS = frozenset(
    {
        "albert", "bart", "bert", "camembert", "convbert", "deberta", "deberta-v2", "distilbert", "electra", "ernie",
        "eurobert", "gemma", "gemma2", "gemma3_text", "gte", "jina_embeddings_v3", "llama", "mistral", "modernbert",
        "mpnet", "new", "nomic_bert", "phi3", "qwen2", "qwen3", "rembert", "roberta", "xlm-roberta", "xlm-roberta-xl",
    }
)  # fmt: skip
"""transformers model types whose classifiers read nothing but the last states of their base model."""


def claim_pairs(card: ModelCard) -> Claim | None:
    """Claim cross-encoders, rerankers that sentence-transformers' files declare, and sequence classifiers.

    A causal language model without such files may be anything; a model config that names the family serves it.
    """
    try:
        layout = read_layout(card)
    except NotUnderstoodError:
        return None
    if is_cross_encoder(card) or (layout.source == "classifier" and card.model_type in CLASSIFIERS):
        return Claim(layout.reason, PRIORITY)
    return None
