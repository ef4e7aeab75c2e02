"""The registration of an architecture; the families that read it define what else a record holds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ArchitectureRecord:
    """What a plugin states about one model type. The records of text encoders are `sie_text.architectures`'."""

    name: str
    """The `model_type` of `config.json`."""
