"""The plugin `text`: the family `static`, the architectures of text encoders, and configs of models people use.

It imports no model library.
"""

from __future__ import annotations

from pathlib import Path

from sie_core.contracts import ArchitectureRecord, ModelFamily
from sie_core.hookspecs import hookimpl
from sie_text.architectures import RECORDS
from sie_text.options import STATIC_OPTIONS
from sie_text.recipe.static import claim_static

INTERFACES = ("sie.family/1", "sie.architecture/1", "sie.models/1")


@hookimpl
def sie_model_families() -> list[ModelFamily]:
    """Register the family `static`, which needs no device."""
    return [
        ModelFamily(
            "static",
            "sie_text.static.encoder:load",
            claim_static,
            options=STATIC_OPTIONS,
            preview="sie_text.static.preview:preview_static",
        )
    ]


@hookimpl
def sie_architectures() -> list[ArchitectureRecord]:
    """Register the architectures of the house."""
    return list(RECORDS)


@hookimpl
def sie_model_folders() -> list[Path]:
    """Register the configs of the models that ship with it."""
    return [Path(__file__).parent / "models"]
