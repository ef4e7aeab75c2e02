"""The plugin `sglang`: its family and its settings. It imports neither sglang nor torch."""

from __future__ import annotations

from sie_core.contracts import ModelFamily, PluginSetting
from sie_core.hookspecs import hookimpl
from sie_sglang.claims import claim_embedder
from sie_sglang.options import OPTIONS, SETTINGS

CONTRACT_VERSION = 1


@hookimpl
def sie_model_families() -> list[ModelFamily]:
    """Register the family `sglang`."""
    return [
        ModelFamily("sglang", "sie_sglang.loading:load", claim_embedder, frozenset({"cpu", "cuda"}), options=OPTIONS)
    ]


@hookimpl
def sie_settings() -> list[PluginSetting]:
    """Register what names the engine's environment."""
    return list(SETTINGS)
