"""The claims of the family of images and texts, with a reason for operators. It reads the card alone."""

from __future__ import annotations

from sie_text.recipe import NotUnderstoodError, read_vision_recipe

from sie_core.contracts import Claim, ModelCard

PRIORITY = 0


def claim_vision(card: ModelCard) -> Claim | None:
    """Claim CLIP and SigLIP with both towers, plain or in sentence-transformers' layouts."""
    try:
        return Claim(read_vision_recipe(card).reason, PRIORITY)
    except NotUnderstoodError:
        return None
