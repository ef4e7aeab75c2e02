"""The pure, clock-injected batch former. It knows no thread, no device and no adapter."""

from sie_core.batching.cost_model import CostModel
from sie_core.batching.former import BatchFormer

__all__ = ["BatchFormer", "CostModel"]
