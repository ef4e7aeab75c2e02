"""Which weights the fallback claims, and what is known of them before a load. It reads the card alone."""

from __future__ import annotations

from sie_text.recipe import has_tokenizer, is_dense_encoder, is_headless

from sie_core.contracts import Claim, ModelCard, ModelConfig, ModelFacts

PRIORITY = -100


def claim_fallback(card: ModelCard) -> Claim | None:
    """Claim what sentence-transformers may load as a dense encoder, below every other family."""
    if not is_dense_encoder(card):
        return None
    if card.modules:
        kinds = " → ".join(module.kind for module in card.modules)
        return Claim(f"sentence-transformers may load its modules.json ({kinds}), padded", PRIORITY)
    if card.model_type and is_headless(card) and has_tokenizer(card):
        return Claim(f"sentence-transformers may load a plain {card.model_type} checkpoint, padded", PRIORITY)
    return None


def preview_fallback(card: ModelCard, config: ModelConfig) -> ModelFacts:
    """Preview a model: what size its vectors have, the library tells."""
    return ModelFacts(outputs=("dense",), max_sequence_length=config.max_sequence_length)
