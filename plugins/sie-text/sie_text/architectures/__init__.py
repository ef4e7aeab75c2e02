"""Architectures: what each model type computes, as records that plugins add to by the hook `sie_architectures`.

A record states the layers of a model type, its class, and how its config is read. A runner that computes the features
of these layers serves the type; the proof at load judges whether the record is right. It imports no model library.
"""

from sie_text.architectures.dialects import IgnoredConfigError
from sie_text.architectures.finding import (
    NONE,
    Records,
    architecture_of,
    find_architecture,
    has_classifier,
    is_encoder,
    named_by,
    translate,
)
from sie_text.architectures.house import RECORDS
from sie_text.architectures.layers import ACTIVATIONS, Bias, Feature, Layers, PostNorm, PreNorm, Tables
from sie_text.architectures.record import Architecture
from sie_text.architectures.rows import DEBERTA

__all__ = [
    "ACTIVATIONS",
    "DEBERTA",
    "NONE",
    "RECORDS",
    "Architecture",
    "Bias",
    "Feature",
    "IgnoredConfigError",
    "Layers",
    "PostNorm",
    "PreNorm",
    "Records",
    "Tables",
    "architecture_of",
    "find_architecture",
    "has_classifier",
    "is_encoder",
    "named_by",
    "translate",
]
