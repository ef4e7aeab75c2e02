"""Built-in plugin: the weight tier `cluster`: a store that the machines of a cluster share, asked before the Hub."""

from __future__ import annotations

from sie_core.cache import CLUSTER_TIER
from sie_core.contracts import CONTRACT_VERSION, WeightTierFactory
from sie_core.hookspecs import hookimpl

__all__ = ["CONTRACT_VERSION", "sie_weight_tiers"]


@hookimpl
def sie_weight_tiers() -> list[WeightTierFactory]:
    """Register the tier `cluster`."""
    return [CLUSTER_TIER]
