"""Where weights come from: a chain of tiers, nearest first."""

from sie_core.cache.chain import (
    HeldWeights,
    WeightChain,
    build_chain,
    fetch_weights,
    find_weights,
    hold_weights,
    weight_request,
)
from sie_core.cache.cluster import CLUSTER_TIER, ClusterTier
from sie_core.cache.disk import DiskCache, DiskLimits, cache_folder
from sie_core.cache.hub import HUB_TIER, HubTier
from sie_core.cache.local import LOCAL_TIER, LocalTier
from sie_core.cache.packages import PACKAGES_TIER, PackagesTier

__all__ = [
    "CLUSTER_TIER",
    "HUB_TIER",
    "LOCAL_TIER",
    "PACKAGES_TIER",
    "ClusterTier",
    "DiskCache",
    "DiskLimits",
    "HeldWeights",
    "HubTier",
    "LocalTier",
    "PackagesTier",
    "WeightChain",
    "build_chain",
    "cache_folder",
    "fetch_weights",
    "find_weights",
    "hold_weights",
    "weight_request",
]
