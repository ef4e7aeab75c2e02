"""Built-in plugin: the weight tier `local`: the local disk, asked first."""

from __future__ import annotations

from sie_core.cache import LOCAL_TIER
from sie_core.contracts import CONTRACT_VERSION, WeightTierFactory
from sie_core.hookspecs import hookimpl

__all__ = ["CONTRACT_VERSION", "sie_weight_tiers"]


@hookimpl
def sie_weight_tiers() -> list[WeightTierFactory]:
    """Register the tier `local`."""
    return [LOCAL_TIER]
