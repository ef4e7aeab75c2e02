"""Which weights the family of pairwise models claims, and the reason an operator reads. It reads the card alone."""

from __future__ import annotations

from sie_core.contracts import Claim, ModelCard
from sie_pytorch.recipe import NotUnderstoodError
from sie_pytorch.scoring.layout import is_cross_encoder, read_layout

PRIORITY = 0
SINGLE_TEXTS_PRIORITY = -100
"""Classifiers of single texts are claimed for a profile that names `score_label`, below any family that classifies.

Without that option their load is refused: a claim sees no profile.
"""

CLASSIFIERS = frozenset(
    {
        "albert", "bart", "bert", "camembert", "convbert", "deberta", "deberta-v2", "distilbert", "electra", "ernie",
        "eurobert", "gemma", "gemma2", "gemma3_text", "gte", "jina_embeddings_v3", "llama", "mistral", "modernbert",
        "mpnet", "new", "nomic_bert", "phi3", "qwen2", "qwen3", "rembert", "roberta", "xlm-roberta", "xlm-roberta-xl",
    }
)  # fmt: skip
"""transformers model types whose classifiers read nothing but the last states of their base model."""


def claim_pairs(card: ModelCard) -> Claim | None:
    """Claim cross-encoders, rerankers that sentence-transformers' files declare, and sequence classifiers of pairs.

    A causal language model without such files may be anything; a model config that names the family serves it.
    """
    try:
        layout = read_layout(card)
    except NotUnderstoodError:
        return None
    if not is_cross_encoder(card) and (layout.source != "classifier" or card.model_type not in CLASSIFIERS):
        return None
    if layout.single_texts:
        return Claim(f"{layout.reason} unless a profile's `score_label` says otherwise", SINGLE_TEXTS_PRIORITY)
    return Claim(layout.reason, PRIORITY)
