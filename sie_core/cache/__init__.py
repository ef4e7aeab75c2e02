"""Fetches weights through a chain of tiers, nearest first."""

from sie_core.cache.chain import (
    HeldWeights,
    WeightChain,
    build_chain,
    fetch_weights,
    find_weights,
    hold_weights,
    weight_request,
)
from sie_core.cache.disk.cache import DiskCache, DiskLimits, cache_folder
from sie_core.cache.disk.proofs import RECORDS
from sie_core.cache.disk.tier import BAKED_TIER, LOCAL_TIER, LocalTier
from sie_core.cache.hub.revisions import is_commit
from sie_core.cache.hub.tier import HUB_TIER, HubTier, ask_commit
from sie_core.cache.packages import PACKAGES_TIER, PackagesTier
from sie_core.cache.store.tier import CLUSTER_TIER, ClusterTier

__all__ = [
    "BAKED_TIER",
    "CLUSTER_TIER",
    "HUB_TIER",
    "LOCAL_TIER",
    "PACKAGES_TIER",
    "RECORDS",
    "ClusterTier",
    "DiskCache",
    "DiskLimits",
    "HeldWeights",
    "HubTier",
    "LocalTier",
    "PackagesTier",
    "WeightChain",
    "ask_commit",
    "build_chain",
    "cache_folder",
    "fetch_weights",
    "find_weights",
    "hold_weights",
    "is_commit",
    "weight_request",
]
