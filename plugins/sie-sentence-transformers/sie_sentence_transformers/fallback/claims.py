"""The claims of the fallback, and the facts known before a load. It reads the card alone."""

from __future__ import annotations

from sie_text.recipe import VISION_ARCHITECTURES, has_tokenizer, is_dense_encoder, is_headless

from sie_core.contracts import Claim, ModelCard, ModelConfig, ModelFacts, NoClaim

PRIORITY = -100

NOT_YET = {
    "GLiClass": "it is a GLiClass, which classifies a text by all labels in one pass; no family serves that yet",
    "extractor": "it is a GLiNER2, which extracts by a schema; no family serves that yet",
}
"""Model types that the library would take for encoders, or that users ask for, each with its description."""
PICTURES = "it reads pictures, and of such models CLIP and SigLIP with both towers are served"
SOUNDS = "it reads sounds, which no family does yet"
OTHER_INPUTS = {
    "vision_config": PICTURES,
    "image_size": PICTURES,
    "img_size": PICTURES,
    "patch_size": PICTURES,
    "audio_config": SOUNDS,
    "num_mel_bins": SOUNDS,
    "feat_extract_activation": SOUNDS,
}
"""Fields of `config.json` that no text encoder has, with what their models read."""


def claim_fallback(card: ModelCard) -> Claim | NoClaim | None:
    """Claim what sentence-transformers may load as a dense encoder, below every other family."""
    if card.model_type in VISION_ARCHITECTURES and not card.modules:
        return None
    if not card.modules and (reason := _unserved(card)):
        return NoClaim(reason)
    if not is_dense_encoder(card):
        return None
    if card.modules:
        kinds = " → ".join(module.kind for module in card.modules)
        return Claim(f"sentence-transformers may load its modules.json ({kinds}), padded", PRIORITY)
    if card.model_type and is_headless(card) and has_tokenizer(card):
        return Claim(f"sentence-transformers may load a plain {card.model_type} checkpoint, padded", PRIORITY)
    return None


def _unserved(card: ModelCard) -> str | None:
    """Describe a plain checkpoint that is no text encoder, by its type or its config."""
    if card.model_type in NOT_YET:
        return NOT_YET[card.model_type]
    return next((reads for field, reads in OTHER_INPUTS.items() if card.config.get(field)), None)


def preview_fallback(card: ModelCard, config: ModelConfig) -> ModelFacts:
    """Preview a model; only the library knows the size of its vectors."""
    return ModelFacts(outputs=("dense",), max_sequence_length=config.max_sequence_length)
