"""Built-in plugin: the weight tier `cluster`: a store that the machines of a cluster share, asked before the Hub."""

from __future__ import annotations

from sie_core.cache import CLUSTER_TIER
from sie_core.contracts import WeightTierFactory
from sie_core.hookspecs import hookimpl

__all__ = ["INTERFACES", "sie_weight_tiers"]

INTERFACES = ("sie.tier/1",)


@hookimpl
def sie_weight_tiers() -> list[WeightTierFactory]:
    """Register the tier `cluster`."""
    return [CLUSTER_TIER]
