"""The plugin `gliner`: its family, and configs of models people use. It imports no model library."""

from __future__ import annotations

from pathlib import Path

from sie_core.contracts import ModelFamily, PluginSetting, Reference
from sie_core.hookspecs import hookimpl
from sie_gliner.claims import claim_gliner, name_companions
from sie_gliner.options import OPTIONS, PYTHON

INTERFACES = ("sie.family/1", "sie.models/1", "sie.reference/1", "sie.setting/1")

DEVICES = frozenset({"cpu", "cuda", "mps"})


@hookimpl
def sie_model_families() -> list[ModelFamily]:
    """Register the family `gliner`."""
    return [
        ModelFamily(
            "gliner",
            "sie_gliner.loading:load",
            claim_gliner,
            devices=DEVICES,
            options=OPTIONS,
            companions=name_companions,
            preview="sie_gliner.claims:preview_gliner",
        )
    ]


@hookimpl
def sie_model_folders() -> list[Path]:
    """Register the configs of the models that ship with the plugin."""
    return [Path(__file__).parent / "models"]


@hookimpl
def sie_settings() -> list[PluginSetting]:
    """Register the reference if gliner is installed."""
    return [PYTHON]


@hookimpl
def sie_references() -> list[Reference]:
    """Register gliner itself, the family's reference."""
    return [
        Reference(
            name="gliner",
            families=frozenset({"gliner"}),
            target="sie_gliner.reference.windows:Windows",
            gives=frozenset({"entities", "relations"}),
        )
    ]
