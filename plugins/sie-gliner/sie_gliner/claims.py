"""The family's claims, with a description for operators, and the base encoders that a checkpoint needs.

It reads the card, and the small `gliner_config.json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from sie_core.contracts import Claim, ModelCard, ModelConfig, ModelFacts
from sie_gliner.checkpoint.bases import BASES, CONFIG_FILE, TOKENIZER_CONFIG

ENCODERS = (
    ("model_name", "encoder_config", ""),
    ("labels_encoder", "labels_encoder_config", "labels_tokenizer/"),
)
"""The fields of the name and the config of each encoder, and the folder of its tokenizer."""
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
"""A name of the Hub's repositories, and no path."""
PRIORITY = 100
"""Above the text encoders: some repositories also keep the inner encoder's `config.json`."""


def claim_gliner(card: ModelCard) -> Claim | None:
    """Claim checkpoints that the gliner library saved."""
    if CONFIG_FILE in card.files:
        return Claim(f"it has a {CONFIG_FILE}", PRIORITY)
    if (card.model_type or "").startswith("gliner"):
        return Claim(f"its model type is {card.model_type}", PRIORITY)
    return None


def name_companions(card: ModelCard) -> Iterator[str]:
    """Name the base encoders whose tokenizer or config is not in a checkpoint's folder, as gliner looks them up."""
    try:
        written = json.loads((card.path / CONFIG_FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return  # the load reports it
    if not isinstance(written, dict):
        return
    for base, field, inside in ENCODERS[: 1 if written.get("relations_layer") else None]:
        name = written.get(base)
        if isinstance(name, str) and REPOSITORY.fullmatch(name):
            known = bool(written.get(field)) or name in BASES
            if not (known and f"{inside}{TOKENIZER_CONFIG}" in card.files):
                yield name


def preview_gliner(card: ModelCard, config: ModelConfig) -> ModelFacts:
    """Return the facts of every model of the family."""
    return ModelFacts(operations=("extract",), max_sequence_length=config.max_sequence_length)
