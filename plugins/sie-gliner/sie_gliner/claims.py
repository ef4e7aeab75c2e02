"""The family's claims, with a description for operators. It reads the card alone."""

from __future__ import annotations

from sie_core.contracts import Claim, ModelCard, ModelConfig, ModelFacts

CONFIG_FILE = "gliner_config.json"
PRIORITY = 100
"""Above the text encoders: some repositories also keep the inner encoder's `config.json`."""


def claim_gliner(card: ModelCard) -> Claim | None:
    """Claim checkpoints that the gliner library saved."""
    if CONFIG_FILE in card.files:
        return Claim(f"it has a {CONFIG_FILE}", PRIORITY)
    if (card.model_type or "").startswith("gliner"):
        return Claim(f"its model type is {card.model_type}", PRIORITY)
    return None


def preview_gliner(card: ModelCard, config: ModelConfig) -> ModelFacts:
    """Return the facts of every model of the family."""
    return ModelFacts(operations=("extract",), max_sequence_length=config.max_sequence_length)
