"""Which models stay on a device: pure decisions over measured numbers."""

from sie_core.memory.limit import within_limit
from sie_core.memory.lru import LeastRecentlyUsed
from sie_core.memory.weights import weight_bytes

__all__ = ["LeastRecentlyUsed", "weight_bytes", "within_limit"]
