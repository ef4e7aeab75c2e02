"""Built-in plugin: the weight tier `hub`: the Hugging Face Hub, asked last."""

from __future__ import annotations

from sie_core.cache import HUB_TIER
from sie_core.contracts import WeightTierFactory
from sie_core.hookspecs import hookimpl

__all__ = ["INTERFACES", "sie_weight_tiers"]

INTERFACES = ("sie.tier/1",)


@hookimpl
def sie_weight_tiers() -> list[WeightTierFactory]:
    """Register the tier `hub`."""
    return [HUB_TIER]
