"""What stays on a device: who holds it is listed and measured, loads are estimated, and a manager decides."""

from sie_core.memory.lru import LeastRecentlyUsed
from sie_core.memory.meter import within_limit
from sie_core.memory.weights import weight_bytes

__all__ = ["LeastRecentlyUsed", "weight_bytes", "within_limit"]
