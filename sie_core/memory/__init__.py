"""Accounts for device memory: lists and measures what uses it, estimates loads, and asks a manager what to evict."""

from sie_core.memory.lru import LeastRecentlyUsed
from sie_core.memory.meter import within_limit
from sie_core.memory.weights import weight_bytes

__all__ = ["LeastRecentlyUsed", "weight_bytes", "within_limit"]
