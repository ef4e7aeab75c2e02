"""Which weights the family claims, and the reason an operator reads. It reads the card alone."""

from __future__ import annotations

from sie_core.contracts import Claim, ModelCard

CONFIG_FILE = "gliner_config.json"
PRIORITY = 100
"""Above the text encoders: some repositories keep the `config.json` of the encoder inside beside their own."""


def claim_gliner(card: ModelCard) -> Claim | None:
    """Claim what the gliner library saved."""
    if CONFIG_FILE in card.files:
        return Claim(f"it has a {CONFIG_FILE}", PRIORITY)
    if (card.model_type or "").startswith("gliner"):
        return Claim(f"its model type is {card.model_type}", PRIORITY)
    return None
