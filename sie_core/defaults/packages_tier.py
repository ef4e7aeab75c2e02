"""Built-in plugin: the weight tier `packages`: weights inside installed Python distributions."""

from __future__ import annotations

from sie_core.cache import PACKAGES_TIER
from sie_core.contracts import WeightTierFactory
from sie_core.hookspecs import hookimpl

__all__ = ["INTERFACES", "sie_weight_tiers"]

INTERFACES = ("sie.tier/1",)


@hookimpl
def sie_weight_tiers() -> list[WeightTierFactory]:
    """Register the tier `packages`."""
    return [PACKAGES_TIER]
