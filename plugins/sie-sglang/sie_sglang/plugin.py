"""The plugin `sglang`: its families and its settings. It imports neither sglang nor torch."""

from __future__ import annotations

from sie_core.contracts import ModelFamily, PluginSetting
from sie_core.hookspecs import hookimpl
from sie_sglang.claims import claim_embedder, claim_reranker
from sie_sglang.options import OPTIONS, RERANKER_OPTIONS, SETTINGS

INTERFACES = ("sie.family/1", "sie.setting/1")

DEVICES = frozenset({"cpu", "cuda"})


@hookimpl
def sie_model_families() -> list[ModelFamily]:
    """Register the families: embedders, and rerankers made of language models."""
    return [
        ModelFamily("sglang", "sie_sglang.loading:load", claim_embedder, devices=DEVICES, options=OPTIONS),
        ModelFamily(
            "sglang-pairs", "sie_sglang.loading:load_pairs", claim_reranker, devices=DEVICES, options=RERANKER_OPTIONS
        ),
    ]


@hookimpl
def sie_settings() -> list[PluginSetting]:
    """Register what names the engine's environment."""
    return list(SETTINGS)
