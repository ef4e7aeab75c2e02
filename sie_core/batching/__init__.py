"""Batch policies: the default batch former, and the checks that hold any policy to its contract (`checked`)."""

from sie_core.batching.cost_model import CostModel
from sie_core.batching.former import BatchFormer

__all__ = ["BatchFormer", "CostModel"]
