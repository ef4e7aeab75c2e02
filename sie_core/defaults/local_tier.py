"""Built-in plugin: the weight tiers `baked` and `local`: folders of the local disk, asked first."""

from __future__ import annotations

from sie_core.cache import BAKED_TIER, LOCAL_TIER
from sie_core.contracts import WeightTierFactory
from sie_core.hookspecs import hookimpl

__all__ = ["INTERFACES", "sie_weight_tiers"]

INTERFACES = ("sie.tier/1",)


@hookimpl
def sie_weight_tiers() -> list[WeightTierFactory]:
    """Register the tiers `baked` and `local`."""
    return [BAKED_TIER, LOCAL_TIER]
