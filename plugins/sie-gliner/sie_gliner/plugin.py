"""The plugin `gliner`: its family, and configs of models people use. It imports no model library."""

from __future__ import annotations

from pathlib import Path

from sie_core.contracts import ModelFamily
from sie_core.hookspecs import hookimpl
from sie_gliner.claims import claim_gliner
from sie_gliner.options import OPTIONS

CONTRACT_VERSION = 1

DEVICES = frozenset({"cpu", "cuda", "mps"})


@hookimpl
def sie_model_families() -> list[ModelFamily]:
    """Register the family `gliner`."""
    return [ModelFamily("gliner", "sie_gliner.adapter:GlinerExtractor", claim_gliner, DEVICES, OPTIONS)]


@hookimpl
def sie_model_folders() -> list[Path]:
    """Register the configs of the models that ship with it."""
    return [Path(__file__).parent / "models"]
